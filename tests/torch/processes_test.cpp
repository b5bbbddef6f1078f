// The same by processes, as users run it.
#include <gtest/gtest.h>

#include <cstdio>

#include "gradsync/torch/sync_batch_norm.hpp"
#include "ranks.hpp"
#include "support/workers.hpp"
#include "worker.hpp"

namespace gradsync_test {
namespace {

using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;
using gradsync::torch::SyncBatchNorm;

// Trains a small network; 0 if all ranks end with the same bits.
int train(gradsync::Overlap overlap) {
  Communicator comm = Communicator::create();
  torch::nn::Sequential net(torch::nn::Conv2d(1, 4, 3), SyncBatchNorm(torch::nn::BatchNormOptions(4), comm),
                            torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(4 * 36, 10));
  DistributedDataParallelOptions options;
  options.sync.overlap = overlap;
  DistributedDataParallel model(net, comm, options);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-2));
  for (std::uint64_t step = 0; step < 30; ++step) {
    model.zero_grad();
    const Tensor x = noise(step * 10 + static_cast<std::uint64_t>(comm.rank()), {4, 1, 8, 8}, torch::kFloat32);
    torch::nll_loss(torch::log_softmax(model(x), 1), torch::arange(4)).backward();
    model.step(optimizer);
  }
  model.synchronize();
  const bool same = same_bits_on_all_ranks(comm, parameters_of(*net));
  comm.barrier();
  return same ? 0 : 1;
}

void expect_well(const std::string& overlap, const std::string& options) {
  gradsync::test::WorkerPlan plan;
  plan.program = gradsync::test::this_program();
  plan.arguments = {"worker", overlap};
  plan.size = 3;
  plan.options = options;
  const auto outcome = gradsync::test::run_workers(plan);
  EXPECT_TRUE(outcome.ok()) << outcome.report();
}

TEST(Processes, EndWithTheSameBits) { expect_well("backward", "timeout=20"); }
TEST(Processes, EndWithTheSameBitsOverTcp) { expect_well("backward", "timeout=20,transport=tcp"); }
TEST(Processes, EndWithTheSameBitsWithoutABarrier) { expect_well("backward_forward", "timeout=20"); }

}  // namespace

int worker(const std::string& name) {
  try {
    return train(name == "backward" ? gradsync::Overlap::backward : gradsync::Overlap::backward_forward);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
}

}  // namespace gradsync_test
