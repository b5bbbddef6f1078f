#include "gradsync/torch/large_batch.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace gradsync::torch {
namespace {

TEST(LargeBatchRate, GrowsWithTheBatchAndWarmsUpInEqualSteps) {
  const LargeBatchRate rate({.rate = 0.1, .reference_batch = 256, .batch = 1024, .warmup_steps = 3});
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.2);
  EXPECT_DOUBLE_EQ(rate.at(2), 0.3);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(1'000'000), 0.4);
}

TEST(LargeBatchRate, MayGrowWithTheSquareRootOrNotAtAll) {
  LargeBatchOptions options{.rate = 0.1, .reference_batch = 100, .batch = 400};
  options.scaling = RateScaling::square_root;
  EXPECT_DOUBLE_EQ(LargeBatchRate(options).scaled(), 0.2);
  options.scaling = RateScaling::none;
  EXPECT_DOUBLE_EQ(LargeBatchRate(options).scaled(), 0.1);
}

TEST(LargeBatchRate, RefusesABatchOfNone) {
  try {
    LargeBatchRate rate({.rate = 0.1, .reference_batch = 256, .batch = 0});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "large batch: the reference batch is 256 and the batch 0, expected at least 1 each");
  }
}

TEST(LayerwiseAdaptive, StepsInProportionToTheWeightsAndLeavesBiasesAlone) {
  const auto f64 = ::torch::TensorOptions().dtype(::torch::kFloat64);
  ::torch::Tensor weight = ::torch::tensor({{3.0, 0.0}, {0.0, 4.0}}, f64).requires_grad_();
  ::torch::Tensor bias = ::torch::tensor({1.0, 2.0}, f64).requires_grad_();
  weight.mutable_grad() = ::torch::tensor({{0.0, 6.0}, {8.0, 0.0}}, f64);
  bias.mutable_grad() = ::torch::tensor({10.0, 10.0}, f64);
  ::torch::optim::SGD sgd({weight, bias}, ::torch::optim::SGDOptions(0.5));
  LayerwiseAdaptive optimizer(sgd, {.trust = 0.02, .weight_decay = 0.0, .epsilon = 0.0});
  optimizer.step();
  // |w| = 5, |g| = 10: the gradient is scaled by 0.02 * 5 / 10 = 0.01, then by the rate.
  const ::torch::Tensor expected = ::torch::tensor({{3.0, -0.03}, {-0.04, 4.0}}, f64);
  EXPECT_LE((weight.detach() - expected).abs().max().item<double>(), 1e-15);
  EXPECT_LE((bias.detach() - ::torch::tensor({-4.0, -3.0}, f64)).abs().max().item<double>(), 1e-15);
}

TEST(LayerwiseAdaptive, AsAClipNeverStepsFurtherThanThePlainRate) {
  const auto f64 = ::torch::TensorOptions().dtype(::torch::kFloat64);
  ::torch::Tensor weight = ::torch::full({1, 1}, 100.0, f64).requires_grad_();
  weight.mutable_grad() = ::torch::full({1, 1}, 0.5, f64);
  ::torch::optim::SGD sgd({weight}, ::torch::optim::SGDOptions(0.1));
  LayerwiseAdaptive(sgd, {.trust = 1.0, .clip = true}).step();
  EXPECT_DOUBLE_EQ(weight.item<double>(), 100.0 - 0.1 * 0.5);
}

}  // namespace
}  // namespace gradsync::torch
