// Failures of the exchange leave backward, or the next call, as gradsync::Error.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::Overlap;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

DistributedDataParallelOptions checking(Overlap overlap) {
  DistributedDataParallelOptions options;
  options.sync.check_finite = true;
  options.sync.overlap = overlap;
  options.sync.overlap_only_if_worth_it = false;
  return options;
}

Tensor data(const Communicator& comm, bool spoilt) {
  Tensor x = noise(static_cast<std::uint64_t>(comm.rank()), {4, 7}, torch::kFloat32);
  if (spoilt && comm.rank() == 1) x[2][3] = NAN;
  return x;
}

TEST(Failures, NaNIsNamedWithParameterAndRankByBackward) {
  on_ranks(3, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    DistributedDataParallel model(net, comm, checking(Overlap::backward));
    const Status status = failure_of([&] { model(data(comm, true)).sum().backward(); });
    EXPECT_EQ(status.code, ErrorCode::not_finite) << status.message;
    EXPECT_NE(status.message.find("rank 1"), std::string::npos) << status.message;
    EXPECT_NE(status.message.find("third."), std::string::npos) << status.message;
    model.zero_grad();
    model(data(comm, false)).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
  });
}

TEST(Failures, WithoutABarrierTheNextCallTellsAndNothingIsApplied) {
  on_ranks(3, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    DistributedDataParallel model(net, comm, checking(Overlap::backward_forward));
    const std::vector<Tensor> before = parameters_of(*net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Status status = failure_of([&] {
      model(data(comm, true)).sum().backward();
      model.step(optimizer);
      model(data(comm, false));
    });
    EXPECT_EQ(status.code, ErrorCode::not_finite) << status.message;
    EXPECT_TRUE(same_bits(parameters_of(*net), before));
    model.zero_grad();
    model(data(comm, false)).sum().backward();
    model.step(optimizer);
    model.synchronize();
    EXPECT_FALSE(same_bits(parameters_of(*net), before));
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
  });
}

TEST(Failures, APeerThatLeavesIsToldByBackward) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    DistributedDataParallel model(net, comm);
    if (comm.rank() == 1) return;  // its communicators end with it
    const Status status = failure_of([&] { model(data(comm, false)).sum().backward(); });
    EXPECT_TRUE(status.code == ErrorCode::peer_lost || status.code == ErrorCode::aborted) << status.message;
    EXPECT_NE(failure_of([&] { model(data(comm, false)).sum().backward(); }).code, ErrorCode::ok);
  });
}

TEST(Failures, GradientsOutliveTheirReplica) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(7, 10, 3);
    std::vector<Tensor> before;
    {
      DistributedDataParallel model(net, comm);
      model(data(comm, false)).sum().backward();
      before = gradients_of(*net);
    }
    EXPECT_TRUE(same_bits(gradients_of(*net), before));
    net->forward(data(comm, false)).sum().backward();  // no hook is left
    EXPECT_EQ(net->third->bias.grad().sum().item<float>(), 2 * before[5].sum().item<float>());
  });
}

}  // namespace
}  // namespace gradsync_test
