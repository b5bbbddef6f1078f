#include "collectives/tables.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync::test {

std::vector<Pattern> moved_patterns(DType dtype, std::uint32_t ranks) {
  std::vector<Pattern> patterns;
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    patterns.emplace_back(dtype, [&](std::size_t i) {
      const Bits any = mix64(mix64(rank + 77) + i);
      return dtype == DType::boolean ? any & 1 : any;
    });
  return patterns;
}

ReducedPatterns reduced_patterns(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t ranks) {
  std::vector<Bits> terms(ranks);
  return {Pattern(dtype, [&](std::size_t i) { return exact_contribution(dtype, op, rank, i); }),
          Pattern(dtype, [&](std::size_t i) {
            for (std::uint32_t r = 0; r < ranks; ++r) terms[r] = exact_contribution(dtype, op, r, i);
            return reduced(dtype, op, terms);
          })};
}

Pattern wide_pattern(DType dtype, std::uint32_t rank) {
  return Pattern(dtype, [&](std::size_t i) { return wide_contribution(dtype, rank, i); });
}

Bounds::Bounds(DType dtype, ReduceOp op, std::uint32_t ranks) : dtype_(dtype) {
  std::vector<Bits> terms(ranks);
  for (std::size_t i = 0; i < Pattern::length; ++i) {
    for (std::uint32_t r = 0; r < ranks; ++r) terms[r] = wide_contribution(dtype, r, i);
    intervals_.push_back(bounded(dtype, op, terms));
  }
  for (Bits bits = 0; dtype == DType::f16 && bits < 65536; ++bits) halves_.push_back(value_of(dtype, bits));
}

long double Bounds::value(const std::byte* got) const {
  std::uint16_t half = 0;
  float single = 0;
  double whole = 0;
  switch (dtype_) {
    case DType::f32: return std::memcpy(&single, got, sizeof single), single;
    case DType::f64: return std::memcpy(&whole, got, sizeof whole), whole;
    default: std::memcpy(&half, got, sizeof half);
  }
  return dtype_ == DType::f16 ? halves_[half] : std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

std::optional<std::size_t> Bounds::outside(const std::byte* got, std::uint64_t salt, std::size_t position,
                                           std::size_t count) const {
  const std::size_t element = size_of(dtype_);
  for (std::size_t i = 0, entry = 0; i < count; ++i, ++entry) {
    if (i == 0 || (position + i) % Pattern::length == 0) entry = Pattern::entry(salt, position + i);
    if (entry == Pattern::length) entry = 0;
    const Interval& wanted = intervals_[entry];
    if (!(std::fabs(value(got + i * element) - wanted.middle) <= wanted.radius)) return i;  // NaN is outside
  }
  return std::nullopt;
}

std::string Bounds::text(Bits got, std::uint64_t salt, std::size_t position) const {
  const Interval& wanted = intervals_[Pattern::entry(salt, position)];
  return fmt::format("{}, expected {} within {}", value_of(dtype_, got), static_cast<double>(wanted.middle),
                     static_cast<double>(wanted.radius));
}

}  // namespace gradsync::test
