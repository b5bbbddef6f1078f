#include "train/norm.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 7.0f;
  return values;
}

TEST(Norm, IsTheSameWhetherFactorsWereAppliedBefore) {
  for (const std::size_t count : {0u, 1u, 5u, 4096u, 10007u}) {
    std::vector<float> values = some_values(count);
    const std::vector<float> untouched = values;
    const double lazily = sum_of_squares(view(values), std::vector<double>{0.3, 1.7});
    EXPECT_EQ(values, untouched);
    for (const double factor : {0.3, 1.7}) kernels::scale(DType::f32, values.data(), count, factor);
    EXPECT_EQ(lazily, sum_of_squares(view(values), {}));
  }
}

TEST(Norm, IsThatOfAPlainSum) {
  std::vector<float> values = some_values(50000);
  double plain = 0;
  for (const float value : values) plain += static_cast<double>(value) * static_cast<double>(value);
  // n roundings of f64, each relative to the sum so far.
  EXPECT_NEAR(sum_of_squares(view(values), {}), plain, plain * 50000 * std::ldexp(1, -52));
}

}  // namespace
}  // namespace gradsync
