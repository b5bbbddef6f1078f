// Gradients of equal bits whatever the buckets, and both overlaps alike.
#include <gtest/gtest.h>

#include "gradsync/torch/large_batch.hpp"
#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::Overlap;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width) {
    in = register_module("in", torch::nn::Linear(8, width));
    middle = register_module("middle", torch::nn::Linear(width, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    out = register_module("out", torch::nn::Linear(width, 4));
  }
  Tensor forward(const Tensor& x) { return out(torch::relu(norm(middle(torch::relu(in(x)))))); }
  torch::nn::Linear in{nullptr}, middle{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(Bits, OfDeterministicGradientsDoNotDependOnBucketsAndLanes) {
  NetImpl start(1500);  // 9 MB of gradients
  for (const std::uint32_t ranks : {2u, 3u}) {
    std::vector<std::vector<Tensor>> found;
    for (const std::size_t megabytes : {1u, 5u, 25u})
      for (const std::uint32_t lanes : {2u, 4u})
        on_ranks(ranks, [&](Communicator& comm) {
          auto net = std::make_shared<NetImpl>(1500);
          copy_state(start, *net);
          DistributedDataParallelOptions options;
          options.sync.bucket_bytes = megabytes << 20;
          options.sync.lanes = lanes;
          options.sync.deterministic = true;
          DistributedDataParallel model(net, comm, options);
          torch::mse_loss(model(share(noise(1, {12, 8}, torch::kFloat32), comm)),
                          share(noise(2, {12, 4}, torch::kFloat32), comm))
              .backward();
          EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
          if (comm.rank() == 0) found.push_back(gradients_of(*net));
        });
    for (const auto& gradients : found) EXPECT_TRUE(same_bits(gradients, found.front())) << ranks << " ranks";
  }
}

struct Recipe {
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)> make;
  bool zero_by_optimizer = false, clip = false, rate_decays = true;
};

std::vector<Tensor> trained(const Recipe& recipe, Overlap overlap, std::uint32_t ranks) {
  std::vector<Tensor> result;
  NetImpl start(40);
  torch::NoGradGuard none;
  for (const Tensor& parameter : start.parameters())
    parameter.copy_(0.2 * noise(static_cast<std::uint64_t>(parameter.numel()), parameter.sizes(), torch::kFloat32));
  on_ranks(ranks, [&](Communicator& comm) {
    auto net = std::make_shared<NetImpl>(40);
    copy_state(start, *net);
    DistributedDataParallelOptions options;
    options.sync.overlap = overlap;
    options.sync.overlap_only_if_worth_it = false;
    options.sync.bucket_bytes = 2048;
    options.sync.deterministic = true;
    DistributedDataParallel model(net, comm, options);
    const auto optimizer = recipe.make(net->parameters());
    for (std::uint64_t step = 0; step < 20; ++step) {
      if (recipe.zero_by_optimizer) optimizer->zero_grad();
      else model.zero_grad();
      torch::mse_loss(model(share(noise(step, {12, 8}, torch::kFloat32), comm)),
                      share(noise(step + 100, {12, 4}, torch::kFloat32), comm))
          .backward();
      EXPECT_EQ(model.sync().overlaps_forward(), ranks > 1 && overlap == Overlap::backward_forward);
      if (recipe.clip) model.clip_grad_norm(0.5);
      model.step(*optimizer);
      if (recipe.rate_decays) gradsync::torch::set_rate(*optimizer, 0.05 / static_cast<double>(step + 1));
    }
    model.synchronize();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
    if (comm.rank() == 0) result = parameters_of(*net);
  });
  return result;
}

void expect_both_overlaps_alike(const Recipe& recipe) {
  for (const std::uint32_t ranks : {1u, 2u, 3u}) {
    const auto with = trained(recipe, Overlap::backward, ranks),
               without = trained(recipe, Overlap::backward_forward, ranks);
    EXPECT_FALSE(with.empty());
    EXPECT_TRUE(same_bits(with, without)) << ranks << " ranks: " << largest_difference(with, without);
  }
}

TEST(Bits, OfBothOverlapsAreEqualWithMomentum) {
  expect_both_overlaps_alike({[](std::vector<Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(parameters,
                                               torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  }});
}
TEST(Bits, OfBothOverlapsAreEqualWithAdam) {
  expect_both_overlaps_alike({[](std::vector<Tensor> parameters) {
    return std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
  }});
}
TEST(Bits, OfBothOverlapsAreEqualWhenTheOptimizerZeroes) {
  expect_both_overlaps_alike({[](std::vector<Tensor> parameters) {
                                return std::make_unique<torch::optim::SGD>(
                                    parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
                              },
                              true});
}
TEST(Bits, OfBothOverlapsAreEqualWithClippedNorms) {
  expect_both_overlaps_alike({[](std::vector<Tensor> parameters) {
                                return std::make_unique<torch::optim::Adagrad>(parameters,
                                                                               torch::optim::AdagradOptions(0.05));
                              },
                              false, true, false});
}

}  // namespace
}  // namespace gradsync_test
