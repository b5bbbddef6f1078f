#include <algorithm>
#include <array>

#include "kernels/reference_for_test.hpp"

namespace gradsync::kernels {
namespace {

using namespace reference;

std::vector<std::size_t> counts() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 130; ++n) all.push_back(n);
  for (const std::size_t n : {255u, 256u, 257u, 511u, 1021u, 4099u}) all.push_back(n);
  return all;
}

std::string describe(Work work, ReduceOp op, std::size_t count) {
  return name_of_work(work) + " " + std::string(name_of(op)) + " count " + std::to_string(count);
}

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) { return std::ranges::equal(a, b); }

// One combine at byte offsets of both arrays from a cache line, against the loop.
void check_combine(Random& random, Pair pair, std::size_t count, std::size_t into_offset, std::size_t from_offset) {
  const std::size_t bytes = count * size_of(pair.work);
  Guarded into(bytes, into_offset), from(bytes, from_offset);
  fill(random, pair.work, into.bytes());
  fill(random, pair.work, from.bytes());
  std::vector<std::byte> wanted(into.bytes().begin(), into.bytes().end());
  const std::vector<std::byte> untouched(from.bytes().begin(), from.bytes().end());
  reference::combine(pair.work, pair.op, wanted.data(), from.data(), count);
  kernels::combine(pair.work, pair.op, into.data(), from.data(), count);
  ASSERT_TRUE(equal(into.bytes(), wanted)) << describe(pair.work, pair.op, count);
  ASSERT_TRUE(into.intact() && from.intact()) << describe(pair.work, pair.op, count);
  ASSERT_TRUE(equal(from.bytes(), untouched)) << describe(pair.work, pair.op, count);
}

// The result in a second place: one of its own, or the second operand's.
void check_also(Random& random, Pair pair, std::size_t count, std::size_t offset, bool apart) {
  const std::size_t bytes = count * size_of(pair.work);
  Guarded into(bytes, 0), from(bytes, offset), other(bytes, offset);
  fill(random, pair.work, into.bytes());
  fill(random, pair.work, from.bytes());
  std::vector<std::byte> wanted(into.bytes().begin(), into.bytes().end());
  reference::combine(pair.work, pair.op, wanted.data(), from.data(), count);
  Guarded& also = apart ? other : from;
  kernels::combine(pair.work, pair.op, into.data(), from.data(), count, also.data());
  ASSERT_TRUE(equal(into.bytes(), wanted) && equal(also.bytes(), wanted)) << describe(pair.work, pair.op, count);
  ASSERT_TRUE(into.intact() && from.intact() && other.intact()) << describe(pair.work, pair.op, count);
}

TEST(Combine, WritesTheSameToASecondPlace) {
  on_every_instruction_set([] {
    Random random(5);
    for (const Pair pair : defined_pairs())
      for (const std::size_t count : counts())
        for (const bool apart : {true, false}) check_also(random, pair, count, size_of(pair.work), apart);
  });
}

TEST(Combine, RunsOnAScalarAndOnTheWidestInstructionSet) {
  const auto sets = instruction_sets();
  ASSERT_FALSE(sets.empty());
  EXPECT_TRUE(sets.back() == "SCALAR" || sets.back() == "EMU128") << sets.back();
  EXPECT_FALSE(force_instruction_set("MMX"));
  for (const std::string_view name : sets) {
    EXPECT_TRUE(force_instruction_set(name));
    EXPECT_EQ(instruction_sets(), sets);
    EXPECT_EQ(instruction_set(), name);
  }
  EXPECT_TRUE(force_instruction_set(""));
  EXPECT_EQ(instruction_set(), sets.front());
}

TEST(Combine, EqualsTheLoopForEveryPairCountAndAlignmentOnEveryInstructionSet) {
  on_every_instruction_set([] {
    Random random(1);
    for (const Pair pair : defined_pairs()) {
      const std::size_t size = size_of(pair.work);
      for (const std::size_t count : counts()) {
        check_combine(random, pair, count, 0, 0);
        check_combine(random, pair, count, size, 3 * size);
        check_combine(random, pair, count, 1, 5);  // not even aligned to the element
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Combine, EqualsTheLoopForLargeOddCounts) {
  Random random(2);
  for (const Pair pair : defined_pairs())
    for (const std::size_t count : {65537u, 1u << 18 | 7u}) check_combine(random, pair, count, 0, size_of(pair.work));
}

TEST(Combine, TakesNullPointersForCountZero) {
  for (const Pair pair : defined_pairs()) {
    kernels::combine(pair.work, pair.op, nullptr, nullptr, 0);
    const std::array<const void*, 3> none = {nullptr, nullptr, nullptr};
    combine_many(pair.work, pair.op, nullptr, none, 0);
  }
}

TEST(Combine, IsCommutativeToTheBit) {
  on_every_instruction_set([] {
    Random random(3);
    for (const Pair pair : defined_pairs()) {
      const std::size_t count = 20011, bytes = count * size_of(pair.work);
      std::vector<std::byte> a(bytes), b(bytes);
      fill(random, pair.work, a);
      fill(random, pair.work, b);
      std::vector<std::byte> ab = a, ba = b;
      kernels::combine(pair.work, pair.op, ab.data(), b.data(), count);
      kernels::combine(pair.work, pair.op, ba.data(), a.data(), count);
      ASSERT_EQ(ab, ba) << describe(pair.work, pair.op, count);
    }
  });
}

TEST(Combine, TakesTheSameArrayTwice) {
  on_every_instruction_set([] {
    Random random(4);
    for (const Pair pair : defined_pairs()) {
      const std::size_t count = 301, bytes = count * size_of(pair.work);
      std::vector<std::byte> a(bytes);
      fill(random, pair.work, a);
      std::vector<std::byte> wanted = a;
      const std::vector<std::byte> again = a;
      reference::combine(pair.work, pair.op, wanted.data(), again.data(), count);
      kernels::combine(pair.work, pair.op, a.data(), a.data(), count);
      ASSERT_EQ(a, wanted) << describe(pair.work, pair.op, count);
    }
  });
}

// Streams of `ways` inputs; `into` is apart (place < 0) or is input number `place`.
void check_many(Random& random, Pair pair, std::size_t ways, int place, std::size_t count) {
  const std::size_t size = size_of(pair.work), bytes = count * size;
  std::vector<Guarded> inputs;
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < ways; ++k) fill(random, pair.work, inputs.emplace_back(bytes, k * size).bytes());
  for (Guarded& input : inputs) pointers.push_back(input.data());
  std::vector<std::byte> wanted(inputs[0].bytes().begin(), inputs[0].bytes().end());
  for (std::size_t k = 1; k < ways; ++k) kernels::combine(pair.work, pair.op, wanted.data(), pointers[k], count);
  if (ways == 1 && pair.work == Work::boolean)
    for (auto& b : wanted) b = std::byte{b != std::byte{0}};
  Guarded apart(bytes, size);
  Guarded& into = place < 0 ? apart : inputs[static_cast<std::size_t>(place)];
  combine_many(pair.work, pair.op, into.data(), pointers, count);
  ASSERT_TRUE(equal(into.bytes(), wanted)) << describe(pair.work, pair.op, count) << " of " << ways << " at " << place;
  ASSERT_TRUE(into.intact());
}

TEST(CombineMany, EqualsRepeatedCombine) {
  on_every_instruction_set([] {
    Random random(5);
    for (const Pair pair : defined_pairs())
      for (std::size_t ways = 1; ways <= 9; ++ways)
        for (const std::size_t count : {0u, 1u, 7u, 67u, 517u})
          for (int place = -1; place < static_cast<int>(ways); ++place) {
            check_many(random, pair, ways, place, count);
            if (testing::Test::HasFatalFailure()) return;
          }
  });
}

template <class T, class Bits>
void check_nan_everywhere(Work work, const std::vector<Bits>& nans, Bits canonical_bits) {
  constexpr std::size_t count = 4 * 64 / sizeof(T) + 64 / sizeof(T) + 3;  // a block, a vector and a tail at 512 bits
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min, ReduceOp::max})
    for (std::size_t at = 0; at < count; ++at)
      for (const Bits nan : nans)
        for (const bool left : {true, false}) {
          std::vector<T> a(count, T{2}), b(count, T{3});
          std::memcpy(&(left ? a : b)[at], &nan, sizeof nan);
          kernels::combine(work, op, a.data(), b.data(), count);
          for (std::size_t i = 0; i < count; ++i) {
            if (i == at) ASSERT_EQ(std::bit_cast<Bits>(a[i]), canonical_bits) << name_of(op) << " at " << at;
            else ASSERT_FALSE(std::isnan(a[i]));
          }
        }
}

TEST(Combine, LeavesTheCanonicalNanInHeadBodyAndTail) {
  on_every_instruction_set([] {
    check_nan_everywhere<float, std::uint32_t>(
        Work::f32, {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fc12345, 0xffffffff}, 0x7fc00000);
    check_nan_everywhere<double, std::uint64_t>(
        Work::f64, {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0xfff0000000000001, 0x7ff8000000abcdef},
        0x7ff8000000000000);
  });
}

TEST(Combine, LeavesTheCanonicalNanForInvalidOperations) {
  const float inf = std::numeric_limits<float>::infinity();
  on_every_instruction_set([inf] {
    for (std::size_t count = 1; count < 100; ++count) {
      std::vector<float> sum(count, inf), product(count, 0.0f);
      const std::vector<float> minus(count, -inf);
      kernels::combine(Work::f32, ReduceOp::sum, sum.data(), minus.data(), count);
      kernels::combine(Work::f32, ReduceOp::product, product.data(), minus.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i]), 0x7fc00000u);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(product[i]), 0x7fc00000u);
      }
    }
  });
}

TEST(Combine, OrdersMinusZeroBelowPlusZeroAndKeepsInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto extreme = [](ReduceOp op, float a, float b) {
    kernels::combine(Work::f32, op, &a, &b, 1);
    return std::bit_cast<std::uint32_t>(a);
  };
  on_every_instruction_set([&] {
    EXPECT_EQ(extreme(ReduceOp::min, -0.0f, 0.0f), 0x80000000u);
    EXPECT_EQ(extreme(ReduceOp::min, 0.0f, -0.0f), 0x80000000u);
    EXPECT_EQ(extreme(ReduceOp::max, -0.0f, 0.0f), 0u);
    EXPECT_EQ(extreme(ReduceOp::max, 0.0f, -0.0f), 0u);
    EXPECT_EQ(extreme(ReduceOp::min, inf, 1.0f), 0x3f800000u);
    EXPECT_EQ(extreme(ReduceOp::max, -inf, -1.0f), 0xbf800000u);
  });
}

TEST(Combine, ComparesBySignAndWidth) {  // all negative; u8 200 against 100; the most negative
  const auto extreme = []<class T>(Work work, ReduceOp op, T a, T b) {
    kernels::combine(work, op, &a, &b, 1);
    return a;
  };
  on_every_instruction_set([&] {
    EXPECT_EQ(extreme(Work::i32, ReduceOp::max, std::int32_t{-7}, std::int32_t{-3}), -3);
    EXPECT_EQ(extreme(Work::f32, ReduceOp::max, -7.0f, -3.0f), -3.0f);
    EXPECT_EQ(extreme(Work::i64, ReduceOp::max, std::int64_t{-7}, std::int64_t{-3}), -3);
    EXPECT_EQ(extreme(Work::i32, ReduceOp::min, std::int32_t{0}, std::int32_t{-1}), -1);
    EXPECT_EQ(extreme(Work::u8, ReduceOp::max, std::uint8_t{200}, std::uint8_t{100}), 200);
    EXPECT_EQ(extreme(Work::u8, ReduceOp::min, std::uint8_t{200}, std::uint8_t{100}), 100);
    EXPECT_EQ(extreme(Work::i8, ReduceOp::min, std::int8_t{-128}, std::int8_t{127}), -128);
    EXPECT_EQ(extreme(Work::i8, ReduceOp::max, std::int8_t{-128}, std::int8_t{-127}), -127);
    EXPECT_EQ(extreme(Work::u64, ReduceOp::max, ~std::uint64_t{0}, std::uint64_t{1}), ~std::uint64_t{0});
  });
}

TEST(Combine, IsDefinedWhereASupportedReductionAccumulates) {
  for (int w = 0; w <= static_cast<int>(Work::u128); ++w)
    for (std::size_t o = 0; o < kReduceOpCount; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      bool wanted = false;
      for (std::size_t d = 0; d < kDTypeCount; ++d) {
        const auto dtype = static_cast<DType>(d);
        wanted |= supports(dtype, op) && work_of(dtype, op) == static_cast<Work>(w);
      }
      EXPECT_EQ(defined(static_cast<Work>(w), op), wanted) << name_of_work(static_cast<Work>(w)) << " " << name_of(op);
    }
}

TEST(Combine, AccumulatesWhereOneRoundingSuffices) {
  EXPECT_EQ(work_of(DType::f16, ReduceOp::sum), Work::f32);
  EXPECT_EQ(work_of(DType::bf16, ReduceOp::avg), Work::f32);
  EXPECT_EQ(work_of(DType::f16, ReduceOp::max), Work::f16);
  EXPECT_EQ(work_of(DType::f64, ReduceOp::avg), Work::f64);
  EXPECT_EQ(work_of(DType::u32, ReduceOp::avg), Work::i64);
  EXPECT_EQ(work_of(DType::i64, ReduceOp::avg), Work::i128);
  EXPECT_EQ(work_of(DType::u64, ReduceOp::avg), Work::u128);
  EXPECT_EQ(work_of(DType::i8, ReduceOp::sum), Work::i8);
  EXPECT_EQ(work_of(DType::boolean, ReduceOp::sum), Work::boolean);
}

TEST(CombineDeath, RefusesAPairThatIsNotDefined) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  float value = 1;
  EXPECT_DEATH(kernels::combine(Work::f32, ReduceOp::bit_and, &value, &value, 1), "defined");
  EXPECT_DEATH(kernels::combine(Work::f16, ReduceOp::sum, &value, &value, 1), "defined");
}

}  // namespace
}  // namespace gradsync::kernels
