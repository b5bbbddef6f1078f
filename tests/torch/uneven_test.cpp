// Ranks with different batches, and with different numbers of them.
#include <gtest/gtest.h>

#include <array>

#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

DistributedDataParallelOptions weighted() {
  DistributedDataParallelOptions options;
  options.sync.weighted = true;
  return options;
}

std::shared_ptr<MlpImpl> network(torch::ScalarType type) {
  auto net = std::make_shared<MlpImpl>(7, 10, 3);
  net->to(type);
  return net;
}

TEST(Uneven, BatchesOf8And24AreTheMeanOver32) {
  const Tensor x = noise(1, {32, 7}, torch::kFloat32), y = noise(2, {32, 3}, torch::kFloat32);
  auto alone = network(torch::kFloat32);
  torch::mse_loss(alone->forward(x), y).backward();
  on_ranks(2, [&](Communicator& comm) {
    auto net = network(torch::kFloat32);
    copy_state(*alone, *net);
    DistributedDataParallel model(net, comm, weighted());
    const std::int64_t begin = comm.rank() == 0 ? 0 : 8, count = comm.rank() == 0 ? 8 : 24;
    model.set_samples(static_cast<std::uint64_t>(count));
    torch::mse_loss(model(x.narrow(0, begin, count)), y.narrow(0, begin, count)).backward();
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-6);
    EXPECT_EQ(model.sync().total_samples(), 32u);
    EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
  });
}

TEST(Uneven, ABatchOf0CountsForNothing) {
  const Tensor x = noise(1, {5, 7}), y = noise(2, {5, 3});
  auto alone = network(torch::kFloat64);
  torch::mse_loss(alone->forward(x), y).backward();
  on_ranks(2, [&](Communicator& comm) {
    auto net = network(torch::kFloat64);
    copy_state(*alone, *net);
    DistributedDataParallel model(net, comm, weighted());
    const std::int64_t count = comm.rank() == 0 ? 0 : 5;
    model.set_samples(static_cast<std::uint64_t>(count));
    torch::mse_loss(model(x.narrow(0, 0, count)), y.narrow(0, 0, count)).backward();  // NaN on rank 0
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-14);
  });
}

// Ranks with 5, 7 and 6 batches of different sizes: each step is the mean over the samples of all that still have some.
void expect_company(gradsync::Overlap overlap) {
  constexpr std::array<int, 3> batches = {5, 7, 6};
  const auto samples = [](int rank, int step) { return 1 + (rank + 2 * step) % 4; };
  const auto data = [&](int rank, int step, std::int64_t width) {
    return noise(static_cast<std::uint64_t>(100 * rank + step) + static_cast<std::uint64_t>(width) * 10000,
                 {samples(rank, step), width});
  };
  auto start = network(torch::kFloat64), alone = network(torch::kFloat64);
  copy_state(*start, *alone);
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 7; ++step) {
    std::vector<Tensor> x, y;
    for (int rank = 0; rank < 3; ++rank)
      if (step < batches[static_cast<std::size_t>(rank)]) {
        x.push_back(data(rank, step, 7));
        y.push_back(data(rank, step, 3));
      }
    optimizer.zero_grad();
    torch::mse_loss(alone->forward(torch::cat(x)), torch::cat(y)).backward();
    optimizer.step();
  }
  on_ranks(3, [&](Communicator& comm) {
    auto net = network(torch::kFloat64);
    copy_state(*start, *net);
    DistributedDataParallelOptions options = weighted();
    options.sync.overlap = overlap;
    options.sync.overlap_only_if_worth_it = false;
    DistributedDataParallel model(net, comm, options);
    torch::optim::SGD own(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    for (int step = 0; step < batches[static_cast<std::size_t>(comm.rank())]; ++step) {
      model.zero_grad();
      model.set_samples(static_cast<std::uint64_t>(samples(comm.rank(), step)));
      torch::mse_loss(model(data(comm.rank(), step, 7)), data(comm.rank(), step, 3)).backward();
      model.step(own);
    }
    int company = 0;
    for (; model.accompany(); ++company) model.step(own);
    EXPECT_EQ(company, 7 - batches[static_cast<std::size_t>(comm.rank())]);
    EXPECT_LE(largest_difference(parameters_of(*net), parameters_of(*alone)), 1e-12);
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
  });
}

TEST(Uneven, RanksThatRanOutKeepTheOthersCompany) { expect_company(gradsync::Overlap::backward); }
TEST(Uneven, CompanyWorksWithoutABarrier) { expect_company(gradsync::Overlap::backward_forward); }

}  // namespace
}  // namespace gradsync_test
