#include <cfenv>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/reference_for_test.hpp"

namespace gradsync::kernels {
namespace {

using namespace reference;

constexpr DType kHalves[] = {DType::f16, DType::bf16};

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

std::vector<float> widened(DType dtype, const std::vector<std::uint16_t>& from) {
  std::vector<float> into(from.size());
  widen(dtype, Work::f32, into.data(), from.data(), from.size());
  return into;
}

std::vector<std::uint16_t> finished(DType dtype, ReduceOp op, std::uint64_t contributions,
                                    const std::vector<float>& from) {
  std::vector<std::uint16_t> into(from.size());
  finish(dtype, op, Work::f32, contributions, into.data(), from.data(), from.size());
  return into;
}

// Every pattern's value, both neighbours of each midpoint, the midpoint, and random bits: 2^20 of each.
std::vector<float> f32_patterns(DType dtype) {
  const HalfFormat f = format_of(dtype);
  std::vector<float> all;
  for (std::uint32_t bits = 0; bits < f.infinity; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const auto middle = static_cast<float>((finite_value(f, low) + finite_value(f, high)) / 2);
    for (const float value : {static_cast<float>(finite_value(f, low)), std::nextafter(middle, 0.0f), middle,
                              std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
      all.push_back(value);
      all.push_back(-value);
    }
  }
  Random random(7);
  for (int i = 0; i < 1 << 20; ++i) all.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
  for (const std::uint32_t bits : special_patterns<std::uint32_t>(23)) all.push_back(std::bit_cast<float>(bits));
  return all;
}

void check_rounding(DType dtype, ReduceOp op, std::uint64_t contributions, const std::vector<float>& values) {
  const auto narrow = finished(dtype, op, contributions, values);
  const double divisor = op == ReduceOp::avg ? static_cast<double>(contributions) : 1.0;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(narrow[i], round_quotient(format_of(dtype), values[i], divisor))
        << name_of(dtype) << " of " << std::bit_cast<std::uint32_t>(values[i]) << " / " << divisor;
}

TEST(Widen, IsExactForEveryPatternOfTheHalves) {
  on_every_instruction_set([] {
    for (const DType dtype : kHalves) {
      const HalfFormat f = format_of(dtype);
      const auto wide = widened(dtype, all_patterns());
      for (std::uint32_t p = 0; p < 65536; ++p) {
        const auto bits = static_cast<std::uint16_t>(p);
        std::uint32_t wanted = std::bit_cast<std::uint32_t>(static_cast<float>(finite_value(f, bits)));
        if ((bits & 0x7fff) == f.infinity) wanted = 0x7f800000u | static_cast<std::uint32_t>(bits & 0x8000) << 16;
        if (is_nan(f, bits)) wanted = 0x7fc00000u;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[p]), wanted) << name_of(dtype) << " " << p;
      }
    }
  });
}

TEST(Finish, GivesBackEveryPatternOfTheHalves) {
  on_every_instruction_set([] {
    for (const DType dtype : kHalves) {
      const auto narrow = finished(dtype, ReduceOp::sum, 3, widened(dtype, all_patterns()));
      for (std::uint32_t p = 0; p < 65536; ++p) {
        const auto bits = static_cast<std::uint16_t>(p);
        ASSERT_EQ(narrow[p], is_nan(format_of(dtype), bits) ? format_of(dtype).quiet_nan : bits);
      }
    }
  });
}

TEST(Finish, RoundsOnceToNearestEven) {
  for (const DType dtype : kHalves) {
    const auto values = f32_patterns(dtype);
    on_every_instruction_set([&] { check_rounding(dtype, ReduceOp::product, 5, values); });
  }
}

// Multiples of midpoints and their neighbours, where dividing in f32 first and rounding again would go wrong.
TEST(Finish, RoundsTheQuotientOfAvgOnce) {
  for (const DType dtype : kHalves) {
    Random random(8);
    const HalfFormat f = format_of(dtype);
    for (const std::uint64_t n : {1u, 2u, 3u, 5u, 7u, 8u, 100u, 1001u, 65535u, 1u << 24}) {
      std::vector<float> values;
      for (int i = 0; i < 40000; ++i) {
        const auto low = static_cast<std::uint16_t>(random.below(f.infinity));
        const double middle = (finite_value(f, low) + finite_value(f, static_cast<std::uint16_t>(low + 1))) / 2;
        const auto value = static_cast<float>(middle * static_cast<double>(n));
        const float up = std::nextafter(value, std::numeric_limits<float>::infinity()),
                    down = std::nextafter(value, 0.0f);
        values.insert(values.end(), {value, -up, down});
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
      }
      for (const std::uint32_t bits : special_patterns<std::uint32_t>(23)) values.push_back(std::bit_cast<float>(bits));
      on_every_instruction_set([&] { check_rounding(dtype, ReduceOp::avg, n, values); });
    }
  }
}

// The mean over ranks that all hold `value`, as a reduction computes it.
std::uint16_t mean_of_equal(DType dtype, std::uint16_t value, std::uint64_t ranks) {
  float sum = widened(dtype, {value})[0];
  const float one = sum;
  for (std::uint64_t r = 1; r < ranks; ++r) kernels::combine(Work::f32, ReduceOp::avg, &sum, &one, 1);
  return finished(dtype, ReduceOp::avg, ranks, {sum})[0];
}

TEST(Finish, NeitherOverflowsNorFlushesOnTheWay) {
  on_every_instruction_set([] {
    const std::uint16_t large = round_quotient(kF16, 40000.0f, 1), tiny = round_quotient(kF16, 6e-8f, 1);
    ASSERT_EQ(tiny, 1);
    EXPECT_EQ(mean_of_equal(DType::f16, large, 4), large);
    EXPECT_EQ(mean_of_equal(DType::f16, tiny, 8), tiny);
    EXPECT_EQ(mean_of_equal(DType::bf16, 1, 8), 1);
    EXPECT_EQ(finished(DType::f16, ReduceOp::sum, 4, {160000.0f})[0], kF16.infinity);
  });
}

TEST(Finish, DividesF32AndF64OnceInPlaceAndApart) {
  on_every_instruction_set([] {
    Random random(9);
    for (const std::size_t count : {1u, 17u, 259u}) {
      std::vector<double> values(count);
      fill(random, Work::f64, std::as_writable_bytes(std::span(values)));
      std::vector<double> apart(count);
      finish(DType::f64, ReduceOp::avg, Work::f64, 7, apart.data(), values.data(), count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(std::bit_cast<std::uint64_t>(apart[i]), std::bit_cast<std::uint64_t>(canonical(values[i] / 7.0)));
      finish(DType::f64, ReduceOp::avg, Work::f64, 7, values.data(), values.data(), count);
      ASSERT_EQ(0, std::memcmp(values.data(), apart.data(), count * sizeof(double)));
      std::vector<float> floats(count);
      fill(random, Work::f32, std::as_writable_bytes(std::span(floats)));
      const std::vector<float> before = floats;
      finish(DType::f32, ReduceOp::avg, Work::f32, 3, floats.data(), floats.data(), count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(canonical(before[i] / 3.0f)));
    }
  });
}

TEST(Convert, WritesNothingOutsideForAnyCountAndAlignment) {
  on_every_instruction_set([] {
    Random random(10);
    for (std::size_t count = 0; count <= 130; ++count)
      for (const std::size_t offset : {0u, 1u, 2u, 6u}) {
        Guarded narrow(count * 2, offset), wide(count * 4, offset + 1), back(count * 2, offset);
        fill(random, Work::f16, narrow.bytes());
        widen(DType::f16, Work::f32, wide.data(), narrow.data(), count);
        finish(DType::f16, ReduceOp::sum, Work::f32, 2, back.data(), wide.data(), count);
        ASSERT_TRUE(narrow.intact() && wide.intact() && back.intact()) << count;
        for (std::size_t i = 0; i < count; ++i) {
          std::uint16_t a, b;
          std::memcpy(&a, narrow.data() + 2 * i, 2);
          std::memcpy(&b, back.data() + 2 * i, 2);
          ASSERT_EQ(b, is_nan(kF16, a) ? kF16.quiet_nan : a);
        }
      }
  });
}

TEST(Convert, TakesNullPointersForCountZero) {
  for (std::size_t d = 0; d < kDTypeCount; ++d)
    for (std::size_t o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!supports(dtype, op)) continue;
      widen(dtype, work_of(dtype, op), nullptr, nullptr, 0);
      finish(dtype, op, work_of(dtype, op), 3, nullptr, nullptr, 0);
    }
}

#if defined(__x86_64__)
// With FTZ, DAZ, rounding upward and unmasked traps in the caller's MXCSR: the same bits, and the mode is given back.
TEST(Convert, DoesNotDependOnTheCallersFloatMode) {
  const auto work_through = [] {
    std::vector<std::uint32_t> bits;
    Random random(11);
    std::vector<float> a(1031), b(1031);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max, ReduceOp::avg}) {
      fill(random, Work::f32, std::as_writable_bytes(std::span(a)));
      fill(random, Work::f32, std::as_writable_bytes(std::span(b)));
      kernels::combine(Work::f32, op, a.data(), b.data(), a.size());
      for (const float x : a) bits.push_back(std::bit_cast<std::uint32_t>(x));
    }
    for (const DType dtype : kHalves) {
      const auto wide = widened(dtype, all_patterns());
      for (const float x : wide) bits.push_back(std::bit_cast<std::uint32_t>(x));
      for (const std::uint64_t n : {1u, 3u})
        for (const std::uint16_t x : finished(dtype, ReduceOp::avg, n, wide)) bits.push_back(x);
    }
    return bits;
  };
  on_every_instruction_set([&] {
    const auto wanted = work_through();
    const unsigned before = _mm_getcsr();
    const unsigned hostile =
        0x8040 | 0x4000 | 0x1f00;  // FTZ, DAZ, upward, invalid unmasked; Intel SDM volume 1, 10.2.3
    _mm_setcsr(hostile);
    const auto found = work_through();
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_TRUE(found == wanted);
    EXPECT_EQ(after & ~0x3fu, hostile);
  });
}
#endif

template <class T, class Sum>
void check_average(DType dtype, const std::vector<T>& values, std::uint64_t n) {
  const Work work = work_of(dtype, ReduceOp::avg);
  std::vector<Sum> sums(values.size()), more(values.size());
  ASSERT_EQ(size_of(work), sizeof(Sum));
  widen(dtype, work, sums.data(), values.data(), values.size());
  const std::vector<T> reversed(values.rbegin(), values.rend());
  widen(dtype, work, more.data(), reversed.data(), values.size());
  kernels::combine(work, ReduceOp::avg, sums.data(), more.data(), values.size());
  std::vector<T> means(values.size());
  finish(dtype, ReduceOp::avg, work, n, means.data(), sums.data(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const I128 sum = static_cast<I128>(values[i]) + static_cast<I128>(reversed[i]);
    ASSERT_TRUE(means[i] == static_cast<T>(sum / static_cast<I128>(n))) << name_of(dtype) << " " << i << " / " << n;
  }
}

template <class T, class Sum>
void check_averages(DType dtype) {
  Random random(12);
  std::vector<T> values = {std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max(),
                           T{0},
                           T{1},
                           static_cast<T>(-1),
                           static_cast<T>(-7),
                           T{7},
                           std::numeric_limits<T>::min()};
  for (int i = 0; i < 300; ++i) values.push_back(static_cast<T>(random.next()));
  for (const std::uint64_t n : {2u, 3u, 8u, 1000003u}) check_average<T, Sum>(dtype, values, n);
  // beyond the signed range of the accumulator
  check_average<T, Sum>(dtype, values, std::numeric_limits<std::uint64_t>::max());
  // both ends of the range, so that only a wide accumulator holds the sum
  check_average<T, Sum>(dtype, {std::numeric_limits<T>::max(), std::numeric_limits<T>::max()}, 2);
  check_average<T, Sum>(dtype, {std::numeric_limits<T>::min(), std::numeric_limits<T>::min()}, 2);
}

TEST(Finish, TruncatesIntegerAveragesTowardZero) {
  check_averages<std::int8_t, std::int64_t>(DType::i8);
  check_averages<std::uint8_t, std::int64_t>(DType::u8);
  check_averages<std::int32_t, std::int64_t>(DType::i32);
  check_averages<std::uint32_t, std::int64_t>(DType::u32);
  check_averages<std::int64_t, I128>(DType::i64);
  check_averages<std::uint64_t, U128>(DType::u64);
  std::int64_t sum = -7;
  std::int32_t mean = 0;
  finish(DType::i32, ReduceOp::avg, Work::i64, 2, &mean, &sum, 1);
  EXPECT_EQ(mean, -3);
}

TEST(Finish, CopiesWhatNeedsNoConversionAndMakesBooleansZeroOrOne) {
  const std::vector<std::uint8_t> bytes = {0, 1, 2, 128, 255};
  std::vector<std::uint8_t> out(bytes.size());
  finish(DType::boolean, ReduceOp::sum, Work::boolean, 4, out.data(), bytes.data(), bytes.size());
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 1, 1, 1, 1}));
  finish(DType::u8, ReduceOp::sum, Work::u8, 4, out.data(), bytes.data(), bytes.size());
  EXPECT_EQ(out, bytes);
  widen(DType::u8, Work::u8, out.data(), bytes.data(), bytes.size());
  EXPECT_EQ(out, bytes);
}

template <class T>
void expect_combine_and_divide_equals_both(Work work, DType dtype) {
  Random random(11);
  for (const std::size_t count : {1u, 3u, 16u, 67u, 1021u})
    for (const std::uint64_t contributions : {1u, 2u, 3u, 7u}) {
      std::vector<T> into(count), from(count);
      fill(random, work, std::as_writable_bytes(std::span(into)));
      fill(random, work, std::as_writable_bytes(std::span(from)));
      std::vector<T> wanted = into, also(count);
      kernels::combine(work, ReduceOp::avg, wanted.data(), from.data(), count);
      finish(dtype, ReduceOp::avg, work, contributions, wanted.data(), wanted.data(), count);
      combine_and_divide(work, contributions, into.data(), from.data(), count, also.data());
      ASSERT_EQ(0, std::memcmp(also.data(), wanted.data(), count * sizeof(T))) << count << " / " << contributions;
      ASSERT_EQ(0, std::memcmp(into.data(), wanted.data(), count * sizeof(T))) << count << " / " << contributions;
    }
}

TEST(CombineAndDivide, LeavesTheBitsOfCombineAndFinish) {
  on_every_instruction_set([] {
    expect_combine_and_divide_equals_both<float>(Work::f32, DType::f32);
    expect_combine_and_divide_equals_both<double>(Work::f64, DType::f64);
  });
}

TEST(ConvertDeath, RefusesWhatNoReductionNeeds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  float value = 1;
  EXPECT_DEATH(widen(DType::i8, Work::f32, &value, &value, 1), "does not hold");
  EXPECT_DEATH(finish(DType::f32, ReduceOp::avg, Work::f32, 0, &value, &value, 1), "contributions");
  EXPECT_DEATH(finish(DType::f16, ReduceOp::sum, Work::f16, 1, &value, &value, 1), "work_of");
  EXPECT_DEATH(combine_and_divide(Work::f32, 0, &value, &value, 1), "contributions");
  EXPECT_DEATH(divide(Work::i64, 2, &value, &value, 1), "Work::f32");
}

}  // namespace
}  // namespace gradsync::kernels
