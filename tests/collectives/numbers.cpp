#include "collectives/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync::test {
namespace {

__extension__ using Wide = __int128;
static_assert(LDBL_MANT_DIG >= 64, "exact sums are computed in long double");

struct Format {
  int mantissa_bits;  // stored ones
  int exponent_min;   // of the smallest normal number
  int exponent_max;
};
Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {10, -14, 15};
    case DType::bf16: return {7, -126, 127};
    case DType::f32: return {23, -126, 127};
    default: return {52, -1022, 1023};
  }
}
int exponent_bits(DType dtype) { return static_cast<int>(size_of(dtype)) * 8 - 1 - format_of(dtype).mantissa_bits; }
bool is_signed(DType dtype) { return dtype == DType::i8 || dtype == DType::i32 || dtype == DType::i64; }

Bits mask_of(DType dtype) { return size_of(dtype) == 8 ? ~Bits{0} : (Bits{1} << (8 * size_of(dtype))) - 1; }

bool is_nan(DType dtype, Bits bits) {
  const Format format = format_of(dtype);
  const Bits all_ones = (Bits{1} << exponent_bits(dtype)) - 1;
  return ((bits >> format.mantissa_bits) & all_ones) == all_ones &&
         (bits & ((Bits{1} << format.mantissa_bits) - 1)) != 0;
}

Wide integer_of(DType dtype, Bits bits) {
  if (!is_signed(dtype)) return bits;
  const int unused = 64 - 8 * static_cast<int>(size_of(dtype));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

std::uint64_t random_at(std::uint64_t stream, std::uint32_t rank, std::uint64_t position) {
  return mix64(mix64(stream * 1000 + rank) + position);
}
std::uint64_t stream_of(DType dtype, ReduceOp op) {
  return static_cast<std::uint64_t>(dtype) * kReduceOpCount + static_cast<std::uint64_t>(op);
}
double whole_number(std::uint64_t h, int bits) {
  const double magnitude = static_cast<double>((h >> 1) & ((std::uint64_t{1} << bits) - 1));
  return h & 1 ? -magnitude : magnitude + 0.0;
}

// Whole numbers without a -0, so that sums that vanish are +0.
double summand(DType dtype, std::uint64_t h, std::uint64_t position) {
  constexpr int bits[] = {11, 8, 20, 49};
  const double whole = whole_number(h, bits[static_cast<int>(dtype)]);
  return whole == 0 ? 0.0 : std::ldexp(whole, -static_cast<int>(position % 8));
}
double factor(std::uint64_t h) {
  constexpr double magnitudes[] = {0.5, 1, 1.5, 2, 3};
  const double magnitude = magnitudes[(h >> 8) % 5];
  return h & 1 ? -magnitude : magnitude;
}
Bits any_but_nan(DType dtype, std::uint64_t h) {
  const Bits bits = h & mask_of(dtype), sign = Bits{1} << (8 * size_of(dtype) - 1);
  if (mix64(h) % 8 == 0) return bits & sign;  // ±0, often enough to meet
  return is_nan(dtype, bits) ? bits & sign : bits;
}
// About as often one outcome as the other with 8 ranks.
Bits logical(ReduceOp op, std::uint64_t h) {
  const std::uint64_t h2 = mix64(h), h3 = mix64(h2);
  if (op == ReduceOp::bit_and || op == ReduceOp::min || op == ReduceOp::product) return h | h2 | h3;
  return op == ReduceOp::bit_xor ? h : h & h2 & h3;
}

Bits reduced_integers(DType dtype, ReduceOp op, std::span<const Bits> terms) {
  Bits bits = terms[0];
  Wide number = integer_of(dtype, terms[0]), sum = number;
  for (Bits term : terms.subspan(1)) {
    const Wide other = integer_of(dtype, term);
    sum += other;
    switch (op) {
      case ReduceOp::product: bits *= term; break;  // modulo 2^64, hence modulo every lower power
      case ReduceOp::min: number = other < number ? other : number; break;
      case ReduceOp::max: number = other > number ? other : number; break;
      case ReduceOp::bit_and: bits &= term; break;
      case ReduceOp::bit_or: bits |= term; break;
      case ReduceOp::bit_xor: bits ^= term; break;
      default: break;
    }
  }
  if (op == ReduceOp::sum) bits = static_cast<Bits>(sum);
  if (op == ReduceOp::avg) bits = static_cast<Bits>(sum / static_cast<Wide>(terms.size()));
  if (op == ReduceOp::min || op == ReduceOp::max) bits = static_cast<Bits>(number);
  return bits & mask_of(dtype);
}

Bits reduced_booleans(ReduceOp op, std::span<const Bits> terms) {
  bool all = true, any = false, odd = false;
  for (Bits term : terms) all = all && term != 0, any = any || term != 0, odd = odd != (term != 0);
  switch (op) {
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::bit_and: return all;
    case ReduceOp::bit_xor: return odd;
    default: return any;
  }
}

Bits reduced_floats(DType dtype, ReduceOp op, std::span<const Bits> terms) {
  double result = value_of(dtype, terms[0]);
  for (Bits term : terms.subspan(1)) {
    const double x = value_of(dtype, term);
    const bool below = x < result || (x == result && std::signbit(x) && !std::signbit(result));
    if (op == ReduceOp::min) result = below ? x : result;
    else if (op == ReduceOp::max) result = below ? result : x;
    else if (op == ReduceOp::product) result *= x;
    else result += x;
  }
  // The double nearest to a quotient p/N with p below 2^24 is never on the other side of a point halfway between two
  // f32 (or shorter) numbers, as such a point is at least 1/(2N) of a last place away: rounding twice does no harm.
  if (op == ReduceOp::avg) result /= static_cast<double>(terms.size());
  return bits_of(dtype, result);
}

}  // namespace

double value_of(DType dtype, Bits bits) {
  if (dtype == DType::f64) return std::bit_cast<double>(bits);
  const Format format = format_of(dtype);
  const bool negative = (bits >> (8 * size_of(dtype) - 1)) & 1;
  const auto mantissa = static_cast<double>(bits & ((Bits{1} << format.mantissa_bits) - 1));
  const auto exponent = static_cast<int>((bits >> format.mantissa_bits) & ((Bits{1} << exponent_bits(dtype)) - 1));
  const double one = std::ldexp(1.0, format.mantissa_bits);
  double magnitude = std::ldexp(exponent == 0 ? mantissa : mantissa + one,
                                (exponent == 0 ? 1 : exponent) - 1 + format.exponent_min - format.mantissa_bits);
  if (exponent == (1 << exponent_bits(dtype)) - 1) magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
  return negative ? -magnitude : magnitude;
}

Bits bits_of(DType dtype, double value) {
  if (dtype == DType::f64) return std::bit_cast<Bits>(value);
  const Format format = format_of(dtype);
  const Bits sign = std::signbit(value) ? Bits{1} << (8 * size_of(dtype) - 1) : 0;
  const Bits infinity = ((Bits{1} << exponent_bits(dtype)) - 1) << format.mantissa_bits;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), format.exponent_min);
  // In units of the last place; at most one more than the mantissa holds, which carries into the exponent as it should.
  const auto places = static_cast<Bits>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const Bits bits = places + (static_cast<Bits>(exponent - format.exponent_min) << format.mantissa_bits);
  return sign | (exponent > format.exponent_max || bits >= infinity ? infinity : bits);
}

Bits exact_contribution(DType dtype, ReduceOp op, std::uint32_t rank, std::uint64_t position) {
  const std::uint64_t h = random_at(stream_of(dtype, op), rank, position);
  if (dtype == DType::boolean) return logical(op, h) & 1;
  if (!is_floating(dtype)) return (op >= ReduceOp::bit_and ? logical(op, h) : h) & mask_of(dtype);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return bits_of(dtype, summand(dtype, h, position));
    case ReduceOp::product: return bits_of(dtype, factor(h));
    default: return any_but_nan(dtype, h);
  }
}

Bits wide_contribution(DType dtype, std::uint32_t rank, std::uint64_t position) {
  const std::uint64_t h = random_at(99, rank, position);
  struct Spread {
    int lowest, count;
  };
  constexpr Spread spreads[] = {{-24, 36}, {-60, 120}, {-60, 120}, {-300, 600}};  // f16: up to 2^12, subnormals too
  const Spread spread = spreads[static_cast<int>(dtype)];
  const int exponent = spread.lowest + static_cast<int>((h >> 54) % static_cast<unsigned>(spread.count));
  const double mantissa = 1.0 + std::ldexp(static_cast<double>((h >> 1) & ((std::uint64_t{1} << 52) - 1)), -52);
  return bits_of(dtype, std::ldexp(h & 1 ? -mantissa : mantissa, exponent));
}

Bits reduced(DType dtype, ReduceOp op, std::span<const Bits> contributions) {
  GRADSYNC_CHECK(!contributions.empty() && contributions.size() <= kExactRanksMax && supports(dtype, op));
  if (dtype == DType::boolean) return reduced_booleans(op, contributions);
  return is_floating(dtype) ? reduced_floats(dtype, op, contributions) : reduced_integers(dtype, op, contributions);
}

Interval bounded(DType dtype, ReduceOp op, std::span<const Bits> contributions) {
  GRADSYNC_CHECK(is_floating(dtype) && (op == ReduceOp::sum || op == ReduceOp::avg));
  const auto n = static_cast<long double>(contributions.size());
  long double sum = 0, magnitudes = 0;
  for (Bits bits : contributions) {
    sum += value_of(dtype, bits);
    magnitudes += std::fabs(value_of(dtype, bits));
  }
  const long double accumulating = dtype == DType::f64 ? 0x1p-53L : 0x1p-24L;
  Interval interval{sum, (n - 1) * 2 * accumulating * magnitudes};
  if (op == ReduceOp::avg) interval = {sum / n, interval.radius / n};
  const bool rounds = op == ReduceOp::avg || size_of(dtype) == 2;
  if (!rounds) return interval;
  const Format format = format_of(dtype);
  const long double last_place = std::ldexp(1.0L, -format.mantissa_bits - 1);
  interval.radius += last_place * (std::fabs(interval.middle) + interval.radius) +
                     std::ldexp(1.0L, format.exponent_min - format.mantissa_bits - 1);
  return interval;
}

}  // namespace gradsync::test
