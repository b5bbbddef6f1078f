// Steps without a barrier: who reads a parameter reads its update.
#include <gtest/gtest.h>

#include "gradsync/torch/large_batch.hpp"
#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

DistributedDataParallelOptions without_barrier() {
  DistributedDataParallelOptions options;
  options.sync.overlap = gradsync::Overlap::backward_forward;
  options.sync.overlap_only_if_worth_it = false;
  options.sync.bucket_bytes = 1024;
  return options;
}

// A model after one step whose updates are put off, with a rate of 1 and gradients of 1: each parameter loses 1.
struct Stepped {
  std::shared_ptr<MlpImpl> net = std::make_shared<MlpImpl>(6, 20, 3);
  DistributedDataParallel<MlpImpl> model;
  torch::optim::SGD optimizer;
  std::vector<Tensor> before;

  explicit Stepped(Communicator& comm) : model(net, comm, without_barrier()), optimizer(net->parameters(), 1.0) {
    before = parameters_of(*net);
    model.before_forward();
    Tensor sum = torch::zeros({});
    for (const Tensor& parameter : net->parameters()) sum = sum + parameter.sum();
    model.after_forward({sum});
    sum.backward();
    model.step(optimizer);
  }
  bool updated(std::size_t i, const Tensor& value) const { return same_bits({value}, {before[i] - 1}); }
};

TEST(Forward, AReadOfAParameterSeesItsUpdate) {
  on_ranks(2, [](Communicator& comm) {
    Stepped s(comm);
    EXPECT_TRUE(s.updated(0, s.net->first->weight.clone()));
    EXPECT_TRUE(s.updated(2, s.net->second->weight.detach().clone()));
    EXPECT_TRUE(s.updated(1, torch::cat({s.net->first->bias}).detach()));
    EXPECT_TRUE(s.updated(5, torch::stack({s.net->third->bias.data()})[0]));
  });
}

TEST(Forward, NothingIsUpdatedUntilItIsRead) {
  on_ranks(2, [](Communicator& comm) {
    Stepped s(comm);
    const std::vector<Tensor> parameters = s.net->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)  // through pointers, which nobody sees
      EXPECT_EQ(*static_cast<float*>(parameters[i].data_ptr()), *static_cast<float*>(s.before[i].data_ptr())) << i;
    EXPECT_TRUE(s.updated(3, s.net->second->bias.clone()));
    s.model.synchronize();
    for (std::size_t i = 0; i < s.before.size(); ++i) EXPECT_TRUE(s.updated(i, parameters[i].detach())) << i;
  });
}

TEST(Forward, AViewTakenBeforeSeesTheUpdate) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(6, 20, 3);
    const Tensor view = net->second->weight.detach().t();
    const Tensor before = view.clone();
    DistributedDataParallel model(net, comm, without_barrier());
    const Tensor start = view.clone();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    model(noise(1, {4, 6}, torch::kFloat32)).sum().backward();
    model.step(optimizer);
    const Tensor after = view.clone();
    model.synchronize();
    EXPECT_FALSE(same_bits({after}, {start}));
    EXPECT_TRUE(same_bits({after}, {net->second->weight.detach().t()}));
  });
}

TEST(Forward, ZeroingByTheOptimizerComesAfterTheUpdate) {
  on_ranks(2, [](Communicator& comm) {
    Stepped s(comm);
    s.optimizer.zero_grad();
    s.model.synchronize();
    for (std::size_t i = 0; i < s.before.size(); ++i) EXPECT_TRUE(s.updated(i, s.net->parameters()[i].detach())) << i;
  });
}

TEST(Forward, AReadOfAGradientBeforeTheStepSeesTheMean) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(6, 20, 3);
    DistributedDataParallel model(net, comm, without_barrier());
    model(noise(1, {4, 6}, torch::kFloat32) * (1 + comm.rank())).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, {net->first->weight.grad().clone()}));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    optimizer.step();  // without model.step(): all is waited for
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
  });
}

TEST(Forward, EvaluationSeesAllUpdates) {
  on_ranks(2, [](Communicator& comm) {
    Stepped s(comm);
    s.net->eval();
    torch::NoGradGuard none;
    const Tensor x = noise(1, {4, 6}, torch::kFloat32);
    const Tensor y = s.model(x);
    MlpImpl other(6, 20, 3);
    for (std::size_t i = 0; i < s.before.size(); ++i) other.parameters()[i].copy_(s.before[i] - 1);
    EXPECT_TRUE(same_bits({y}, {other.forward(x)}));
  });
}

TEST(Forward, ARateThatIsSetAfterTheStepIsThatOfTheNext) {
  on_ranks(2, [](Communicator& comm) {
    Stepped s(comm);
    gradsync::torch::set_rate(s.optimizer, 100);
    s.model.synchronize();
    EXPECT_TRUE(s.updated(0, s.net->first->weight.detach()));
    EXPECT_EQ(s.optimizer.param_groups()[0].options().get_lr(), 100);
    EXPECT_EQ(s.optimizer.param_groups()[0].params().size(), 6u);
  });
}

TEST(Forward, ParametersOfNoReplicaAreSteppedAtOnce) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<MlpImpl>(6, 20, 3);
    const Tensor own = torch::ones({2}).requires_grad_(true);
    DistributedDataParallel model(net, comm, without_barrier());
    std::vector<Tensor> all = net->parameters();
    all.push_back(own);
    torch::optim::SGD optimizer(all, 1.0);
    (model(noise(1, {4, 6}, torch::kFloat32)).sum() + own.sum()).backward();
    model.step(optimizer);
    EXPECT_EQ(own.data_ptr<float>()[0], 0);
  });
}

TEST(Forward, WrappedOptimizersWork) {
  const auto run = [](gradsync::Overlap overlap, std::vector<Tensor>& result) {
    on_ranks(2, [&](Communicator& comm) {
      auto net = std::make_shared<MlpImpl>(6, 20, 3);
      for (const Tensor& parameter : net->parameters())
        parameter.set_data(0.3 *
                           noise(static_cast<std::uint64_t>(parameter.numel()), parameter.sizes(), torch::kFloat32));
      DistributedDataParallelOptions options = without_barrier();
      options.sync.overlap = overlap;
      options.sync.deterministic = true;
      DistributedDataParallel model(net, comm, options);
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
      gradsync::torch::LayerwiseAdaptive optimizer(sgd, {.trust = 0.01});
      for (std::uint64_t step = 0; step < 5; ++step) {
        model.zero_grad();
        model(noise(step + 10 * static_cast<std::uint64_t>(comm.rank()), {4, 6}, torch::kFloat32))
            .pow(2)
            .sum()
            .backward();
        gradsync::torch::set_rate(sgd, 0.5 / static_cast<double>(step + 1));
        model.step(optimizer);
      }
      model.synchronize();
      if (comm.rank() == 0) result = parameters_of(*net);
    });
  };
  std::vector<Tensor> with, without;
  run(gradsync::Overlap::backward, with);
  run(gradsync::Overlap::backward_forward, without);
  EXPECT_TRUE(same_bits(with, without)) << largest_difference(with, without);
}

}  // namespace
}  // namespace gradsync_test
