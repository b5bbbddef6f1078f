#include "cli/pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync::cli {
namespace {

// Small whole numbers, so that sums are exact in every type; a product has one factor that is not 1 at each element.
std::int64_t value_of(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t world, std::size_t index) {
  const std::uint64_t random = mix64(rank * std::uint64_t{Pattern::period} + index);
  if (dtype == DType::boolean) return static_cast<std::int64_t>(random % 2);
  if (op == ReduceOp::product) return index % world == rank ? static_cast<std::int64_t>(2 + index % 5) : 1;
  const std::int64_t small = static_cast<std::int64_t>(random % 7);
  const bool is_signed = is_floating(dtype) || dtype == DType::i8 || dtype == DType::i32 || dtype == DType::i64;
  return is_signed ? small - 3 : small;
}

std::int64_t combine(DType dtype, ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::sum: return dtype == DType::boolean ? a | b : a + b;
    case ReduceOp::avg: return a + b;
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::bit_and: return a & b;
    case ReduceOp::bit_or: return a | b;
    case ReduceOp::bit_xor: return a ^ b;
  }
  return 0;
}

std::uint16_t bf16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Of values whose magnitude is 0 or within f16's normal range, or above it (infinity).
std::uint16_t f16_bits(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);  // to nearest even at bit 13
  GRADSYNC_CHECK(rounded >= 113u << 23);                                      // 2^-14
  const std::uint32_t half = (rounded >> 13) - (112u << 10);
  return static_cast<std::uint16_t>(sign | std::min(half, 0x7c00u));
}

template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

void Pattern::set(DType dtype, std::size_t index, double value) {
  std::byte* at = bytes_.data() + index * width_;
  if (dtype == DType::f64) store(at, value);
  else if (dtype == DType::f32) store(at, static_cast<float>(value));
  else if (dtype == DType::f16) store(at, f16_bits(static_cast<float>(value)));
  else store(at, bf16_bits(static_cast<float>(value)));
}

// The low bytes of two's complement: what wraps wraps (little-endian hosts, as the library requires).
void Pattern::set(DType dtype, std::size_t index, std::int64_t value) {
  if (is_floating(dtype)) return set(dtype, index, static_cast<double>(value));
  std::memcpy(bytes_.data() + index * width_, &value, width_);
}

Pattern Pattern::of_rank(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t world) {
  Pattern pattern(dtype);
  for (std::size_t i = 0; i < period; ++i) pattern.set(dtype, i, value_of(dtype, op, rank, world, i));
  return pattern;
}

Pattern Pattern::reduced(DType dtype, ReduceOp op, std::uint32_t world) {
  Pattern pattern(dtype);
  for (std::size_t i = 0; i < period; ++i) {
    std::int64_t all = value_of(dtype, op, 0, world, i);
    for (std::uint32_t r = 1; r < world; ++r) all = combine(dtype, op, all, value_of(dtype, op, r, world, i));
    // Division in f64 and one more rounding to 24 bits or fewer is division rounded once (Figueroa 1995).
    if (op == ReduceOp::avg && is_floating(dtype)) pattern.set(dtype, i, static_cast<double>(all) / world);
    else pattern.set(dtype, i, op == ReduceOp::avg ? all / std::int64_t{world} : all);
  }
  return pattern;
}

template <class Visit>
bool Pattern::for_each_part(std::size_t bytes, std::uint64_t first, Visit&& visit) const {
  std::size_t at = static_cast<std::size_t>(first % period) * width_;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t part = std::min(bytes - done, bytes_.size() - at);
    if (!visit(done, std::span(bytes_).subspan(at, part))) return false;
    done += part;
    at = 0;
  }
  return true;
}

void Pattern::fill(std::span<std::byte> out, std::uint64_t first) const {
  for_each_part(out.size(), first, [&](std::size_t at, std::span<const std::byte> part) {
    std::memcpy(out.data() + at, part.data(), part.size());
    return true;
  });
}

bool Pattern::equals(std::span<const std::byte> bytes, std::uint64_t first) const {
  return for_each_part(bytes.size(), first, [&](std::size_t at, std::span<const std::byte> part) {
    return std::memcmp(bytes.data() + at, part.data(), part.size()) == 0;
  });
}

}  // namespace gradsync::cli
