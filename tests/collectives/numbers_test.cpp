// The reference itself, against values worked out by hand.
#include "collectives/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "collectives/pattern.hpp"

namespace gradsync::test {
namespace {

TEST(Numbers, EveryHalfAndEveryBrainFloatSurvivesTheWayToDoubleAndBack) {
  for (DType dtype : {DType::f16, DType::bf16})
    for (Bits bits = 0; bits < 65536; ++bits) {
      if (std::isnan(value_of(dtype, bits))) continue;
      ASSERT_EQ(bits_of(dtype, value_of(dtype, bits)), bits) << name_of(dtype);
    }
}

TEST(Numbers, AreRoundedToNearestEven) {
  EXPECT_EQ(bits_of(DType::f16, 1.0), 0x3c00u);
  EXPECT_EQ(bits_of(DType::f16, 2049), bits_of(DType::f16, 2048));
  EXPECT_EQ(bits_of(DType::f16, 2051), bits_of(DType::f16, 2052));
  EXPECT_EQ(bits_of(DType::f16, 65504), 0x7bffu);
  EXPECT_EQ(bits_of(DType::f16, 65519.99), 0x7bffu);
  EXPECT_EQ(bits_of(DType::f16, 65520), 0x7c00u);
  EXPECT_EQ(bits_of(DType::f16, -0x1p-24), 0x8001u);
  EXPECT_EQ(bits_of(DType::f16, 0x1p-25), 0u);
  EXPECT_EQ(bits_of(DType::bf16, 257), bits_of(DType::bf16, 256));
  EXPECT_EQ(bits_of(DType::bf16, 259), bits_of(DType::bf16, 260));
  EXPECT_EQ(bits_of(DType::f32, 0.1), 0x3dcccccdu);
  EXPECT_EQ(value_of(DType::f32, 0xc0490fdbu), static_cast<double>(-3.14159274f));
}

TEST(Numbers, ReductionsByHand) {
  const auto of = [](DType dtype, ReduceOp op, std::vector<Bits> terms) { return reduced(dtype, op, terms); };
  EXPECT_EQ(of(DType::i8, ReduceOp::sum, {100, 100}), 200u);     // wraps to -56
  EXPECT_EQ(of(DType::i8, ReduceOp::avg, {0xff, 0xfe}), 0xffu);  // -3/2 is -1
  EXPECT_EQ(of(DType::i8, ReduceOp::min, {1, 0x80}), 0x80u);
  EXPECT_EQ(of(DType::u8, ReduceOp::max, {200, 100}), 200u);
  EXPECT_EQ(of(DType::u64, ReduceOp::avg, {~0ull, ~0ull}), ~0ull);
  EXPECT_EQ(of(DType::i64, ReduceOp::avg, {1ull << 63, 1ull << 63}), 1ull << 63);
  EXPECT_EQ(of(DType::boolean, ReduceOp::sum, {1, 1}), 1u);
  EXPECT_EQ(of(DType::boolean, ReduceOp::product, {1, 0}), 0u);
  EXPECT_EQ(of(DType::f16, ReduceOp::avg, {bits_of(DType::f16, 40000), bits_of(DType::f16, 40000)}),
            bits_of(DType::f16, 40000));
  EXPECT_EQ(of(DType::f32, ReduceOp::min, {0, 0x80000000u}), 0x80000000u);
  EXPECT_EQ(of(DType::f32, ReduceOp::max, {0x80000000u, 0}), 0u);
}

TEST(Numbers, ExactContributionsStayExactInTheAccumulatingType) {
  for (DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::product})
      for (std::uint64_t i = 0; i < 20000; ++i) {
        double exact = op == ReduceOp::sum ? 0 : 1;
        float narrow = static_cast<float>(exact);
        for (std::uint32_t rank = 0; rank < kExactRanksMax; ++rank) {
          const double x = value_of(dtype, exact_contribution(dtype, op, rank, i));
          exact = op == ReduceOp::sum ? exact + x : exact * x;
          narrow = op == ReduceOp::sum ? narrow + static_cast<float>(x) : narrow * static_cast<float>(x);
          ASSERT_EQ(static_cast<double>(narrow), exact);
        }
      }
}

TEST(Pattern, WhatIsWrittenIsFoundAndOneWrongElementTooAnywhere) {
  const Pattern pattern(DType::i32, [](std::size_t i) { return i * 2654435761u & 0xffffffffu; });
  const std::size_t count = 200000;
  std::vector<std::byte> data(count * 4);
  pattern.write(data.data(), 7, 3, count);
  EXPECT_FALSE(pattern.difference(data.data(), 7, 3, count));
  EXPECT_TRUE(pattern.difference(data.data(), 8, 3, count));
  EXPECT_TRUE(pattern.difference(data.data(), 7, 3 + Pattern::length, count - Pattern::length));
  for (std::size_t at : {std::size_t{0}, Pattern::length, count - 1}) {
    data[at * 4 + 1] ^= std::byte{1};
    EXPECT_EQ(pattern.difference(data.data(), 7, 3, count), 3 + at);
    data[at * 4 + 1] ^= std::byte{1};
  }
}

}  // namespace
}  // namespace gradsync::test
