#include "train/sparse.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "base/random.hpp"
#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

template <class T>
SparseRows rows_of(std::vector<std::int64_t> rows, const std::vector<T>& values) {
  SparseRows all{std::move(rows), std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(all.values.data(), values.data(), all.values.size());
  return all;
}

template <class T>
std::vector<T> values_of(const SparseRows& all) {
  std::vector<T> values(all.values.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), all.values.data(), all.values.size());
  return values;
}

std::string refusal(const SparseRows& all, DType dtype, std::size_t row_elements, std::int64_t rows_total) {
  try {
    merge_rows(all, dtype, row_elements, rows_total, 1.0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(MergeRows, SortsAndAddsRowsThatOccurSeveralTimes) {
  const SparseRows merged =
      merge_rows(rows_of<float>({7, 2, 7, 0, 2, 7}, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}), DType::f32, 2, 8, 1.0);
  EXPECT_EQ(merged.rows, (std::vector<std::int64_t>{0, 2, 7}));
  EXPECT_EQ(values_of<float>(merged), (std::vector<float>{4, 40, 7, 70, 10, 100}));
}

TEST(MergeRows, TakesNothingAndRowsOfNoElements) {
  EXPECT_TRUE(merge_rows({}, DType::f32, 3, 10, 0.5).rows.empty());
  EXPECT_TRUE(merge_rows({}, DType::f32, 3, 0, 0.5).rows.empty());
  const SparseRows merged = merge_rows({{3, 1, 3}, {}}, DType::f64, 0, 4, 0.5);
  EXPECT_EQ(merged.rows, (std::vector<std::int64_t>{1, 3}));
  EXPECT_TRUE(merged.values.empty());
}

TEST(MergeRows, AddsInTheOrderInWhichRowsStand) {
  EXPECT_EQ(values_of<float>(merge_rows(rows_of<float>({0, 0, 0}, {1e8f, -1e8f, 1}), DType::f32, 1, 1, 1.0))[0], 1.0f);
  EXPECT_EQ(values_of<float>(merge_rows(rows_of<float>({0, 0, 0}, {1, 1e8f, -1e8f}), DType::f32, 1, 1, 1.0))[0], 0.0f);
}

TEST(MergeRows, AddsSixteenBitsInF32AndRoundsOnceAfterScaling) {
  // 256 + 1 + 1 is 258 in f32; in bf16 each step would fall back to 256. 40000 + 40000 overflows f16, its mean does not.
  const std::vector<std::uint16_t> bf16 = {0x4380, 0x3f80, 0x3f80};
  EXPECT_EQ(values_of<std::uint16_t>(merge_rows(rows_of({0, 0, 0}, bf16), DType::bf16, 1, 1, 1.0))[0], 0x4381);
  const std::vector<std::uint16_t> f16 = {0x78e2, 0x78e2};
  EXPECT_EQ(values_of<std::uint16_t>(merge_rows(rows_of({0, 0}, f16), DType::f16, 1, 1, 0.5))[0], 0x78e2);
}

TEST(MergeRows, MeansAreTheExactSumDividedOnce) {
  Random random(3);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto ranks = static_cast<std::uint32_t>(1 + random.below(5000));
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
      const auto sum = static_cast<float>(1 + random.below(1u << 24));
      std::vector<std::byte> wanted(size_of(dtype));
      std::uint16_t one = 0;
      if (dtype == DType::f32) {
        const auto merged = values_of<float>(merge_rows(rows_of<float>({0}, {sum}), dtype, 1, 1, 1.0 / ranks));
        ASSERT_EQ(merged[0], sum / static_cast<float>(ranks)) << sum << " / " << ranks;
        continue;
      }
      const auto half = static_cast<std::uint16_t>(1 + random.below(0x7000));
      std::memcpy(&one, &half, sizeof one);
      float wide = 0;
      kernels::widen(dtype, kernels::Work::f32, &wide, &one, 1);
      kernels::finish(dtype, ReduceOp::avg, kernels::Work::f32, ranks, wanted.data(), &wide, 1);
      const SparseRows merged = merge_rows(rows_of<std::uint16_t>({0}, {half}), dtype, 1, 1, 1.0 / ranks);
      ASSERT_EQ(merged.values, wanted) << name_of(dtype) << " " << half << " / " << ranks;
    }
  }
}

TEST(MergeRows, EqualsADenseSumOfRandomLists) {
  Random random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const auto total = static_cast<std::int64_t>(1 + random.below(12));
    const std::size_t row_elements = random.below(5), count = random.below(30);
    std::vector<std::int64_t> rows;
    std::vector<double> values;
    std::map<std::int64_t, std::vector<double>> dense;
    for (std::size_t k = 0; k < count; ++k) {
      rows.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(total))));
      std::vector<double>& row = dense.try_emplace(rows.back(), row_elements, 0.0).first->second;
      for (std::size_t i = 0; i < row_elements; ++i) {
        values.push_back(static_cast<double>(random.below(1000)));
        row[i] += values.back() * 0.5;
      }
    }
    const SparseRows merged = merge_rows(rows_of(rows, values), DType::f64, row_elements, total, 0.5);
    std::vector<std::int64_t> wanted_rows;
    std::vector<double> wanted;
    for (const auto& [row, sums] : dense) {
      wanted_rows.push_back(row);
      wanted.insert(wanted.end(), sums.begin(), sums.end());
    }
    ASSERT_EQ(merged.rows, wanted_rows) << "trial " << trial;
    ASSERT_EQ(values_of<double>(merged), wanted) << "trial " << trial;
  }
}

TEST(MergeRows, NamesARowOutsideOfTheParameter) {
  EXPECT_EQ(refusal(rows_of<float>({0, 9, 10}, {1, 2, 3}), DType::f32, 1, 10),
            "sparse gradient: row 10 at position 2 is outside of a parameter of 10 rows");
  EXPECT_EQ(refusal(rows_of<float>({-1}, {1}), DType::f32, 1, 10),
            "sparse gradient: row -1 at position 0 is outside of a parameter of 10 rows");
}

TEST(MergeRows, RefusesSizesThatDoNotFitAndIntegers) {
  EXPECT_EQ(refusal(rows_of<float>({0, 1}, {1, 2, 3}), DType::f32, 2, 10),
            "sparse gradient: 12 bytes of values, expected 2 rows of 8 bytes");
  EXPECT_EQ(refusal(rows_of<float>({0}, {1}), DType::f32, 0, 10),
            "sparse gradient: 4 bytes of values, expected 1 rows of 0 bytes");
  EXPECT_EQ(refusal({}, DType::i32, 1, 10), "sparse gradient: dtype is i32, expected f16, bf16, f32 or f64");
}

}  // namespace
}  // namespace gradsync
