#include <gtest/gtest.h>

#include <mutex>

#include "gradsync/torch/sync_batch_norm.hpp"
#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::torch::SyncBatchNorm;
using torch::nn::BatchNormOptions;

struct Norm {  // one pass: what went in, what came out
  Tensor output, input_gradient, weight_gradient, bias_gradient, mean, variance, batches;
};

// `sum(output * factors)` is the loss, so that every element has a gradient of its own.
template <class Module>
Norm pass(Module& norm, const Tensor& input, const Tensor& factors) {
  const Tensor x = input.clone().requires_grad_(true);
  norm->zero_grad();
  const Tensor y = norm->forward(x);
  (y * factors).sum().backward();
  const auto gradient = [](const Tensor& t) { return t.defined() && t.grad().defined() ? t.grad().clone() : Tensor(); };
  return {y.detach(),         x.grad().clone(),  gradient(norm->weight),   gradient(norm->bias),
          norm->running_mean, norm->running_var, norm->num_batches_tracked};
}

template <class Module>
void set_affine(Module& norm, std::int64_t channels) {
  if (!norm->weight.defined()) return;
  torch::NoGradGuard none;
  norm->weight.copy_(noise(91, {channels}));
  norm->bias.copy_(noise(92, {channels}));
}

double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  return largest_difference({a}, {b});
}

Tensor summed(Communicator& comm, const Tensor& mine) {
  Tensor sum = mine.to(torch::kFloat64).contiguous().clone();
  comm.all_reduce({sum.data_ptr(), static_cast<std::size_t>(sum.numel()), gradsync::DType::f64},
                  gradsync::ReduceOp::sum);
  return sum;
}

struct Case {
  std::vector<std::int64_t> batches;  // of the ranks
  std::vector<std::int64_t> rest;     // channels and what follows
  torch::ScalarType type = torch::kFloat64;
  double tolerance = 1e-12;
  double offset = 0;                                             // of the data: cancellation
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;  // of the ranks' input
};

template <class Reference>
void expect_as_one_process(const Case& c, BatchNormOptions options) {
  std::vector<std::int64_t> shape = c.rest;
  shape.insert(shape.begin(), 0);
  for (const std::int64_t batch : c.batches) shape[0] += batch;
  const std::int64_t channels = c.rest[0];
  std::vector<Norm> expected;
  Reference reference(options);
  reference->to(c.type);
  set_affine(reference, channels);
  const auto data = [&](std::uint64_t step) {
    return std::pair((noise(step, shape) + c.offset).to(c.type), noise(step + 100, shape, c.type));
  };
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto [x, factors] = data(step);
    expected.push_back(pass(reference, x, factors));
    for (Tensor* t : {&expected.back().mean, &expected.back().variance, &expected.back().batches})
      if (t->defined()) *t = t->clone();
  }
  on_ranks(static_cast<std::uint32_t>(c.batches.size()), [&](Communicator& comm) {
    SyncBatchNorm norm(options, comm);
    norm->to(c.type);
    set_affine(norm, channels);
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < rank; ++r) begin += c.batches[r];
    const auto mine = [&](const Tensor& whole) { return whole.narrow(0, begin, c.batches[rank]); };
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto [x, factors] = data(step);
      const Norm got = pass(norm, mine(x).contiguous(c.format), mine(factors));
      const Norm& want = expected[step];
      EXPECT_LE(distance(got.output, mine(want.output)), c.tolerance);
      EXPECT_LE(distance(got.input_gradient, mine(want.input_gradient)), c.tolerance);
      EXPECT_LE(distance(got.mean, want.mean), c.tolerance);
      EXPECT_LE(distance(got.variance, want.variance), c.tolerance * (1 + c.offset));
      if (want.batches.defined()) { EXPECT_TRUE(got.batches.equal(want.batches)); }
      ASSERT_EQ(got.weight_gradient.defined(), want.weight_gradient.defined());
      if (!want.weight_gradient.defined()) continue;
      EXPECT_LE(distance(summed(comm, got.weight_gradient), want.weight_gradient), 8 * c.tolerance);
      EXPECT_LE(distance(summed(comm, got.bias_gradient), want.bias_gradient), 8 * c.tolerance);
    }
  });
}

TEST(SyncBatchNorm, IsExactForLocalBatchesOf1And3And0) {
  expect_as_one_process<torch::nn::BatchNorm2d>({{1, 3, 0}, {5, 3, 2}}, BatchNormOptions(5));
}
TEST(SyncBatchNorm, TakesInputsOfAnyNumberOfDimensions) {
  expect_as_one_process<torch::nn::BatchNorm1d>({{2, 3}, {4}}, BatchNormOptions(4));
  expect_as_one_process<torch::nn::BatchNorm1d>({{2, 3}, {4, 7}}, BatchNormOptions(4));
  expect_as_one_process<torch::nn::BatchNorm3d>({{2, 0, 1}, {3, 2, 3, 4}}, BatchNormOptions(3));
}
TEST(SyncBatchNorm, KeepsACumulativeAverageWithoutMomentum) {
  expect_as_one_process<torch::nn::BatchNorm2d>({{1, 4}, {2, 3, 3}}, BatchNormOptions(2).momentum(c10::nullopt));
}
TEST(SyncBatchNorm, WorksWithoutAffineAndWithoutStatistics) {
  expect_as_one_process<torch::nn::BatchNorm2d>({{1, 4}, {2, 3, 3}}, BatchNormOptions(2).affine(false));
  expect_as_one_process<torch::nn::BatchNorm2d>({{1, 4}, {2, 3, 3}}, BatchNormOptions(2).track_running_stats(false));
}
TEST(SyncBatchNorm, TakesInputsWithChannelsLastInMemoryAndKeepsThemSo) {
  expect_as_one_process<torch::nn::BatchNorm2d>(
      {{1, 3, 0}, {5, 3, 2}, torch::kFloat64, 1e-12, 0, torch::MemoryFormat::ChannelsLast}, BatchNormOptions(5));
  expect_as_one_process<torch::nn::BatchNorm3d>(
      {{2, 0, 1}, {3, 2, 3, 4}, torch::kFloat64, 1e-12, 0, torch::MemoryFormat::ChannelsLast3d}, BatchNormOptions(3));
  on_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(4), comm);
    const Tensor x = noise(1, {2, 4, 3, 3}).contiguous(torch::MemoryFormat::ChannelsLast);
    norm->to(torch::kFloat64);
    EXPECT_TRUE(norm(x).is_contiguous(torch::MemoryFormat::ChannelsLast));
  });
}
// f32: libtorch's own rounds x * alpha + beta; elements are of magnitude 4 at most, gradients are sums of 60 terms.
TEST(SyncBatchNorm, IsAsExactAsSinglePrecisionAllows) {
  expect_as_one_process<torch::nn::BatchNorm2d>({{3, 1, 6}, {3, 3, 2}, torch::kFloat32, 64 * 4 * 0x1.0p-23},
                                                BatchNormOptions(3));
}
// Values of 1e6 with a variance of 1: squares would lose 12 of 16 digits; 1e6 * 2^-52 is what the data itself has lost.
TEST(SyncBatchNorm, KeepsItsDigitsFarFromZero) {
  expect_as_one_process<torch::nn::BatchNorm2d>({{3, 4}, {2, 3, 3}, torch::kFloat64, 1e-8, 1e6}, BatchNormOptions(2));
}

TEST(SyncBatchNorm, IsPlainInEvaluation) {
  on_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(3), comm);
    torch::nn::BatchNorm2d plain(BatchNormOptions(3));
    norm->eval();
    plain->eval();
    if (comm.rank() == 1) return;  // nobody is waited for
    const Tensor x = noise(1, {2, 3, 4, 4}, torch::kFloat32);
    EXPECT_TRUE(same_bits({norm(x)}, {plain(x)}));
  });
}

TEST(SyncBatchNorm, TakesHalfPrecisionAndStridedInputs) {
  on_ranks(2, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(4), comm);
    const Tensor x = noise(static_cast<std::uint64_t>(comm.rank()), {2, 4, 3, 3}, torch::kFloat32);
    const Tensor strided = norm(x.transpose(2, 3).contiguous().transpose(2, 3)), plain = norm(x);
    EXPECT_TRUE(same_bits({strided}, {plain}));
    const Tensor low = norm(x.to(torch::kBFloat16));
    EXPECT_EQ(low.scalar_type(), torch::kBFloat16);
    EXPECT_LE(largest_difference({low}, {plain}), 4 * 0x1.0p-8 * 4);
  });
}

TEST(SyncBatchNorm, RefusesOneValueOverAllRanks) {
  on_ranks(3, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(2), comm);
    const Status status = failure_of([&] { norm(torch::ones({comm.rank() == 1 ? 1 : 0, 2})); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.message, "SyncBatchNorm: 1 values a channel over all ranks, expected more than 1");
    EXPECT_EQ(failure_of([&] {
                norm(torch::ones({2, 3}));
              }).message,
              "SyncBatchNorm: input is (2, 3), expected (N, 2, …)");
  });
}

TEST(SyncBatchNorm, RefusesBackwardThroughBackward) {
  on_ranks(1, [](Communicator& comm) {
    SyncBatchNorm norm(BatchNormOptions(2), comm);
    const Tensor x = noise(1, {4, 2}, torch::kFloat32).requires_grad_(true);
    const Tensor y = norm(x).pow(2).sum();
    const Status status = failure_of([&] { torch::autograd::grad({y}, {x}, {}, true, true); });
    EXPECT_EQ(status.code, ErrorCode::unsupported);
  });
}

struct StackImpl : torch::nn::SequentialImpl {  // a Sequential that may be in another
  using torch::nn::SequentialImpl::SequentialImpl;
  Tensor forward(const Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};

TEST(SyncBatchNorm, ReplacesThoseOfASequential) {
  on_ranks(2, [](Communicator& comm) {
    const auto inner =
        std::make_shared<StackImpl>(torch::nn::Conv2d(2, 3, 3), torch::nn::BatchNorm2d(3), torch::nn::ReLU());
    torch::nn::Sequential net(inner, torch::nn::BatchNorm2d(3));
    net->to(torch::kFloat64);
    const std::vector<Tensor> before = net->parameters();
    for (const Tensor& parameter : before) parameter.set_data(noise(5, parameter.sizes()));  // the same on both ranks
    const Tensor x = noise(3, {4, 2, 5, 5});
    const Tensor expected = net->forward(x);
    EXPECT_EQ(gradsync::torch::convert_sync_batch_norm(*net, comm), 2u);
    const std::vector<Tensor> after = net->parameters();
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(before[i].is_same(after[i]));
    std::vector<std::string> names;
    for (const auto& item : net->named_buffers()) names.push_back(item.key());
    EXPECT_EQ(names.front(), "0.1.running_mean");
    EXPECT_LE(largest_difference({net->forward(x)}, {expected}), 1e-12);
  });
}

struct OwnerImpl : torch::nn::Module {
  OwnerImpl() { norm = register_module("norm", torch::nn::BatchNorm1d(2)); }
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Owner);

TEST(SyncBatchNorm, NamesTheOneThatCannotBeReplaced) {
  on_ranks(1, [](Communicator& comm) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(2));
    net->register_module("owner", std::make_shared<OwnerImpl>());
    const Status status = failure_of([&] { gradsync::torch::convert_sync_batch_norm(*net, comm); });
    EXPECT_EQ(status.code, ErrorCode::unsupported);
    EXPECT_NE(status.message.find("owner.norm is a batch norm"), std::string::npos) << status.message;
  });
}

}  // namespace
}  // namespace gradsync_test
