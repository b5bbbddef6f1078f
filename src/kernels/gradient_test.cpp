#include <algorithm>

#include "kernels/reference_for_test.hpp"

namespace gradsync::kernels {
namespace {

using namespace reference;

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 140; ++n) all.push_back(n);
  for (const std::size_t n : {1023u, 1024u, 1025u, 2049u, 5003u}) all.push_back(n);
  return all;
}

// To nearest even among the 16-bit floats, by bisection; `value` is exact.
std::uint16_t rounded(HalfFormat f, double value) {
  if (std::isnan(value)) return f.quiet_nan;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  std::uint16_t low = 0, high = f.infinity;
  if (magnitude >= finite_value(f, high)) return static_cast<std::uint16_t>(sign | f.infinity);
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (finite_value(f, middle) <= magnitude ? low : high) = middle;
  }
  const double tie = (finite_value(f, low) + finite_value(f, high)) / 2;
  return static_cast<std::uint16_t>(sign | (magnitude > tie || (magnitude == tie && (low & 1) == 1) ? high : low));
}

double value_of(DType dtype, const std::byte* at) {
  if (dtype == DType::f64) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const HalfFormat f = format_of(dtype);
  if (is_nan(f, bits)) return std::numeric_limits<double>::quiet_NaN();
  if ((bits & 0x7fff) == f.infinity)
    return (bits & 0x8000) != 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  return finite_value(f, bits);
}

void scale_reference(DType dtype, std::byte* at, double factor) {
  const double value = value_of(dtype, at), product = value * static_cast<double>(static_cast<float>(factor));
  if (dtype == DType::f64) {
    const double scaled = canonical(value * factor);
    std::memcpy(at, &scaled, sizeof scaled);
  } else if (dtype == DType::f32) {
    const float scaled = canonical(static_cast<float>(product));  // exact in f64, so rounded once
    std::memcpy(at, &scaled, sizeof scaled);
  } else {
    const std::uint16_t scaled = rounded(format_of(dtype), product);
    std::memcpy(at, &scaled, sizeof scaled);
  }
}

TEST(Scale, EqualsTheLoopForEveryCountAndAlignmentOnEveryInstructionSet) {
  on_every_instruction_set([] {
    Random random(11);
    for (const DType dtype : kFloats)
      for (const std::size_t count : counts())
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, gradsync::size_of(dtype)}) {
          const double factor = (random.unit() - 0.5) * 64;
          Guarded array(count * gradsync::size_of(dtype), offset);
          fill(random, same_as(dtype), array.bytes());
          std::vector<std::byte> wanted(array.bytes().begin(), array.bytes().end());
          for (std::size_t i = 0; i < count; ++i)
            scale_reference(dtype, wanted.data() + i * gradsync::size_of(dtype), factor);
          scale(dtype, array.data(), count, factor);
          ASSERT_TRUE(std::ranges::equal(array.bytes(), wanted)) << name_of(dtype) << " " << count << " by " << factor;
          ASSERT_TRUE(array.intact());
        }
  });
}

TEST(Scale, RoundsEveryPatternOfTheHalvesOnce) {
  on_every_instruction_set([] {
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const double factor :
           {1.0 / 3, 1.0, 3.0, 1 + 0x1p-12, 0x1.ffep-9, 1e4, 1e30, 0.0, 0x1p-20, 1.7e-36, 0x1.8p-126}) {
        std::vector<std::uint16_t> values(65536), wanted(65536);
        for (std::size_t p = 0; p < values.size(); ++p) wanted[p] = values[p] = static_cast<std::uint16_t>(p);
        for (std::uint16_t& value : wanted) scale_reference(dtype, reinterpret_cast<std::byte*>(&value), factor);
        scale(dtype, values.data(), values.size(), factor);
        for (std::size_t p = 0; p < values.size(); ++p)
          ASSERT_EQ(values[p], wanted[p]) << name_of(dtype) << " pattern " << p << " by " << factor;
      }
  });
}

// As the contract words it.
double squares_reference(DType dtype, const std::byte* data, std::size_t count) {
  double lanes[32] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const double value = value_of(dtype, data + i * gradsync::size_of(dtype));
    volatile double square = value * value;
    lanes[i % 32] += square;
  }
  for (std::size_t half = 16; half != 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return canonical(lanes[0]);
}

TEST(SumOfSquares, AddsInTheOrderOfItsContractOnEveryInstructionSet) {
  on_every_instruction_set([] {
    Random random(12);
    for (const DType dtype : kFloats)
      for (const std::size_t count : counts())
        for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, gradsync::size_of(dtype)}) {
          const std::size_t size = gradsync::size_of(dtype);
          Guarded array(count * size, offset);
          fill(random, same_as(dtype), array.bytes());
          const bool finite_only = count % 2 == 0;  // else NaN hides all
          for (std::size_t i = 0; finite_only && i < count; ++i)
            if (!std::isfinite(value_of(dtype, array.data() + i * size)))
              std::memset(array.data() + i * size, 0x11, size);
          const double found = sum_of_squares(dtype, array.data(), count);
          ASSERT_EQ(std::bit_cast<std::uint64_t>(found),
                    std::bit_cast<std::uint64_t>(squares_reference(dtype, array.data(), count)))
              << name_of(dtype) << " " << count << " at " << offset;
        }
  });
}

TEST(SumOfSquares, DoesNotOverflowWhereTheElementsTypeWould) {
  const std::vector<float> large(100, 3e38f);
  const double square = static_cast<double>(3e38f) * static_cast<double>(3e38f);
  EXPECT_NEAR(sum_of_squares(DType::f32, large.data(), large.size()), 100 * square, 100 * square * 0x1p-50);
}

TEST(FirstNotFinite, FindsEachPlaceAndTheFirstOfSeveralOnEveryInstructionSet) {
  on_every_instruction_set([] {
    for (const DType dtype : kFloats) {
      const std::size_t size = gradsync::size_of(dtype), count = 4 * 64 / size + 64 / size + 3;
      Guarded array(count * size, 1);
      std::ranges::fill(array.bytes(), std::byte{0x7b});  // finite in all four
      ASSERT_EQ(first_not_finite(dtype, array.data(), count), count);
      for (std::size_t at = count; at-- != 0;) {
        std::vector<std::byte> bad(size, std::byte{0xff});  // NaN
        if (at % 2 == 0) {                                  // -inf
          std::ranges::fill(bad, std::byte{0});
          bad[size - 1] = std::byte{dtype == DType::f16 ? std::uint8_t{0xfc} : std::uint8_t{0xff}};
          if (dtype != DType::f16)
            bad[size - 2] = std::byte{dtype == DType::f64 ? std::uint8_t{0xf0} : std::uint8_t{0x80}};
        }
        std::ranges::copy(bad, array.data() + at * size);
        ASSERT_EQ(first_not_finite(dtype, array.data(), count), at) << name_of(dtype);
        ASSERT_EQ(first_not_finite(dtype, array.data(), at), at) << name_of(dtype);
      }
    }
  });
}

TEST(FirstNotFinite, TakesTheLargestForFinite) {
  const std::uint16_t f16 = 0xfbff, bf16 = 0xff7f;
  const float f32 = std::numeric_limits<float>::lowest();
  const double f64 = std::numeric_limits<double>::max();
  on_every_instruction_set([&] {
    EXPECT_EQ(first_not_finite(DType::f16, &f16, 1), 1u);
    EXPECT_EQ(first_not_finite(DType::bf16, &bf16, 1), 1u);
    EXPECT_EQ(first_not_finite(DType::f32, &f32, 1), 1u);
    EXPECT_EQ(first_not_finite(DType::f64, &f64, 1), 1u);
  });
}

TEST(GradientDeath, RefusesIntegers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::int32_t value = 1;
  EXPECT_DEATH(scale(DType::i32, &value, 1, 2.0), "is_floating");
  EXPECT_DEATH(sum_of_squares(DType::i32, &value, 1), "is_floating");
  EXPECT_DEATH(first_not_finite(DType::i32, &value, 1), "is_floating");
}

}  // namespace
}  // namespace gradsync::kernels
