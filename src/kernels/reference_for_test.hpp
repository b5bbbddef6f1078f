// Test support: obvious scalar reductions written apart from the kernels, guarded arrays, all instruction sets.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.hpp"
#include "kernels/kernels.hpp"

namespace gradsync::kernels::reference {

__extension__ using I128 = __int128;
__extension__ using U128 = unsigned __int128;

// A 16-bit float: `mantissa` explicit bits, exponent bias `bias`; the rest is exponent and sign.
struct HalfFormat {
  int mantissa;
  int bias;
  std::uint16_t infinity;
  std::uint16_t quiet_nan;
};
inline constexpr HalfFormat kF16{10, 15, 0x7c00, 0x7e00};
inline constexpr HalfFormat kBf16{7, 127, 0x7f80, 0x7fc0};
inline HalfFormat format_of(DType dtype) { return dtype == DType::f16 ? kF16 : kBf16; }

inline bool is_nan(HalfFormat f, std::uint16_t bits) { return (bits & 0x7fff) > f.infinity; }

// Exact. The bits of infinity read as the next power of two, which is where rounding to infinity aims.
inline double finite_value(HalfFormat f, std::uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> f.mantissa;
  const int fraction = bits & ((1 << f.mantissa) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - f.bias - f.mantissa)
                                         : std::ldexp(fraction + (1 << f.mantissa), exponent - f.bias - f.mantissa);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// value / divisor, rounded once to nearest even, by bisection over the ordered positive patterns. Ties and sides are
// decided on value against midpoint * divisor, both exact in f64 for an f32 value and a divisor below 2^40.
inline std::uint16_t round_quotient(HalfFormat f, float value, double divisor) {
  if (std::isnan(value)) return f.quiet_nan;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  std::uint16_t low = 0, high = f.infinity;  // low <= quotient < high, unless beyond all
  if (magnitude >= finite_value(f, high) * divisor) return static_cast<std::uint16_t>(sign | f.infinity);
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (finite_value(f, middle) * divisor <= magnitude ? low : high) = middle;
  }
  const double tie = (finite_value(f, low) + finite_value(f, high)) / 2 * divisor;
  const bool up = magnitude > tie || (magnitude == tie && (low & 1) == 1);
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

template <class T>
T canonical(T value) {
  if (!std::isnan(value)) return value;
  if constexpr (sizeof(T) == 4) return std::bit_cast<float>(std::uint32_t{0x7fc00000});
  else return std::bit_cast<double>(std::uint64_t{0x7ff8000000000000});
}

template <class T>
T least(T a, T b) {
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T greatest(T a, T b) {
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
T combine_floats(ReduceOp op, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return canonical(std::numeric_limits<T>::quiet_NaN());
  if (op == ReduceOp::min) return least(a, b);
  if (op == ReduceOp::max) return greatest(a, b);
  volatile T result = op == ReduceOp::product ? a * b : a + b;
  return canonical(static_cast<T>(result));
}

template <class T>
T combine_integers(ReduceOp op, T a, T b) {
  const auto x = static_cast<U128>(a), y = static_cast<U128>(b);
  switch (op) {
    case ReduceOp::product: return static_cast<T>(x * y);
    case ReduceOp::min: return a < b ? a : b;
    case ReduceOp::max: return a > b ? a : b;
    case ReduceOp::bit_and: return static_cast<T>(x & y);
    case ReduceOp::bit_or: return static_cast<T>(x | y);
    case ReduceOp::bit_xor: return static_cast<T>(x ^ y);
    default: return static_cast<T>(x + y);
  }
}

inline std::uint8_t combine_booleans(ReduceOp op, std::uint8_t a, std::uint8_t b) {
  const bool x = a != 0, y = b != 0;
  if (op == ReduceOp::bit_xor) return x != y;
  if (op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bit_or) return x || y;
  return x && y;
}

inline std::uint16_t combine_halves(HalfFormat f, ReduceOp op, std::uint16_t a, std::uint16_t b) {
  if (is_nan(f, a) || is_nan(f, b)) return f.quiet_nan;
  const double x = finite_value(f, a), y = finite_value(f, b);
  const double wanted = op == ReduceOp::min ? least(x, y) : greatest(x, y);
  return std::bit_cast<std::uint64_t>(wanted) == std::bit_cast<std::uint64_t>(x) ? a : b;
}

template <class T, class F>
void each(void* into, const void* from, std::size_t count, F f) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<std::byte*>(into) + i * sizeof(T), sizeof(T));
    std::memcpy(&b, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
    const T c = f(a, b);
    std::memcpy(static_cast<std::byte*>(into) + i * sizeof(T), &c, sizeof(T));
  }
}

inline void combine(Work work, ReduceOp op, void* into, const void* from, std::size_t n) {
  const auto floats = [op](auto a, auto b) { return combine_floats(op, a, b); };
  const auto integers = [op](auto a, auto b) { return combine_integers(op, a, b); };
  switch (work) {
    case Work::f16:
      return each<std::uint16_t>(into, from, n, [op](auto a, auto b) { return combine_halves(kF16, op, a, b); });
    case Work::bf16:
      return each<std::uint16_t>(into, from, n, [op](auto a, auto b) { return combine_halves(kBf16, op, a, b); });
    case Work::f32: return each<float>(into, from, n, floats);
    case Work::f64: return each<double>(into, from, n, floats);
    case Work::i8: return each<std::int8_t>(into, from, n, integers);
    case Work::u8: return each<std::uint8_t>(into, from, n, integers);
    case Work::i32: return each<std::int32_t>(into, from, n, integers);
    case Work::u32: return each<std::uint32_t>(into, from, n, integers);
    case Work::i64: return each<std::int64_t>(into, from, n, integers);
    case Work::u64: return each<std::uint64_t>(into, from, n, integers);
    case Work::boolean:
      return each<std::uint8_t>(into, from, n, [op](auto a, auto b) { return combine_booleans(op, a, b); });
    case Work::i128: return each<I128>(into, from, n, integers);
    case Work::u128: return each<U128>(into, from, n, integers);
  }
}

// `bytes` bytes at `offset` past a cache line, with 64 guard bytes each side.
class Guarded {
 public:
  Guarded(std::size_t bytes, std::size_t offset)
      : bytes_(bytes),
        storage_(bytes + offset + 3 * kGuard, std::byte{0xa5}) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    start_ = (kGuard - address % kGuard) + kGuard + offset;
  }
  std::byte* data() { return storage_.data() + start_; }
  std::span<std::byte> bytes() { return {data(), bytes_}; }
  bool intact() const {
    for (std::size_t i = 0; i < storage_.size(); ++i)
      if ((i < start_ || i >= start_ + bytes_) && storage_[i] != std::byte{0xa5}) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::size_t bytes_;
  std::size_t start_ = 0;
  std::vector<std::byte> storage_;
};

// Patterns that trip float code: ±0, ±inf, quiet and signalling NaNs of both signs, subnormals, the largest, ±1.
template <class Bits>
std::vector<Bits> special_patterns(int mantissa) {
  const Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const Bits infinity = static_cast<Bits>(static_cast<Bits>(~sign) >> mantissa << mantissa);
  const Bits quiet = static_cast<Bits>(Bits{1} << (mantissa - 1));
  const Bits one = static_cast<Bits>(infinity >> 1 >> mantissa << mantissa);
  std::vector<Bits> all;
  for (const Bits low :
       {Bits{0}, Bits{1}, static_cast<Bits>(quiet + 1), static_cast<Bits>(quiet - 1), infinity,
        static_cast<Bits>(infinity | quiet), static_cast<Bits>(infinity | quiet | 5), static_cast<Bits>(infinity | 1),
        static_cast<Bits>(infinity | (quiet - 1)), static_cast<Bits>(infinity - 1), one}) {
    all.push_back(low);
    all.push_back(static_cast<Bits>(low | sign));
  }
  return all;
}

template <class Bits>
void sprinkle(Random& random, std::span<std::byte> out, const std::vector<Bits>& specials) {
  for (std::size_t at = 0; at + sizeof(Bits) <= out.size(); at += sizeof(Bits)) {
    if (random.below(3) != 0) continue;
    const Bits value = specials[random.below(specials.size())];
    std::memcpy(out.data() + at, &value, sizeof(Bits));
  }
}

// Random bits with many special patterns of that type among them.
inline void fill(Random& random, Work work, std::span<std::byte> out) {
  for (auto& b : out) b = static_cast<std::byte>(random.next());
  if (work == Work::f16) return sprinkle(random, out, special_patterns<std::uint16_t>(10));
  if (work == Work::bf16) return sprinkle(random, out, special_patterns<std::uint16_t>(7));
  if (work == Work::f32) return sprinkle(random, out, special_patterns<std::uint32_t>(23));
  if (work == Work::f64) return sprinkle(random, out, special_patterns<std::uint64_t>(52));
  if (work == Work::boolean)
    for (auto& b : out)
      if (random.below(2) == 0) b = std::byte{0};
}

inline std::string name_of_work(Work work) {
  static const char* const names[] = {"f16", "bf16", "f32", "f64",  "i8",   "u8",  "i32",
                                      "u32", "i64",  "u64", "bool", "i128", "u128"};
  return names[static_cast<std::size_t>(work)];
}

struct Pair {
  Work work;
  ReduceOp op;
};
inline std::vector<Pair> defined_pairs() {
  std::vector<Pair> all;
  for (int w = 0; w <= static_cast<int>(Work::u128); ++w)
    for (std::size_t o = 0; o < kReduceOpCount; ++o)
      if (defined(static_cast<Work>(w), static_cast<ReduceOp>(o)))
        all.push_back({static_cast<Work>(w), static_cast<ReduceOp>(o)});
  return all;
}

// Runs `f` once on every instruction set of this machine.
template <class F>
void on_every_instruction_set(F f) {
  for (const std::string_view name : instruction_sets()) {
    SCOPED_TRACE("instruction set " + std::string(name));
    ASSERT_TRUE(force_instruction_set(name));
    ASSERT_EQ(instruction_set(), name);
    f();
  }
  ASSERT_TRUE(force_instruction_set(""));
}

}  // namespace gradsync::kernels::reference
