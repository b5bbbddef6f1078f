// What happens between forward and backward: unused parameters, several forwards, buffers.
#include <gtest/gtest.h>

#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    a = register_module("a", torch::nn::Linear(3, 2));
    b = register_module("b", torch::nn::Linear(3, 2));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x, bool use_a, bool use_b) {
    Tensor sum = torch::zeros({x.size(0), 2}, torch::kFloat64);
    if (use_a) sum = sum + a(x);
    if (use_b) sum = sum + b(x).pow(2);
    return sum;
  }
  torch::nn::Linear a{nullptr}, b{nullptr};
};

DistributedDataParallelOptions finding(bool on = true) {
  DistributedDataParallelOptions options;
  options.sync.find_unused = on;
  return options;
}

TEST(Graph, UnusedOnesOfTwoMicroBatchesAreFound) {
  const Tensor x = noise(1, {8, 3});
  BranchesImpl alone;
  (alone.forward(x, true, false).sum() / 2).backward();
  (alone.forward(x, false, true).sum() / 2).backward();
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<BranchesImpl>();
    copy_state(alone, *net);
    DistributedDataParallel model(net, comm, finding());
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      {
        const auto local = model.no_sync();
        model(share(x, comm), true, false).sum().backward();
      }
      model(share(x, comm), false, true).sum().backward();
      EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(alone)), 1e-13);
      EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
    }
  });
}

TEST(Graph, AParameterThatOneRankUsesHasItsGradientOnAll) {
  const Tensor x = noise(1, {4, 3});
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<BranchesImpl>();
    DistributedDataParallel model(net, comm, finding());
    model(x, true, comm.rank() == 1).sum().backward();
    BranchesImpl alone;
    copy_state(*net, alone);
    (alone.forward(x, true, false).sum() / 2 + alone.forward(x, true, true).sum() / 2).backward();
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(alone)), 1e-13);
    ASSERT_TRUE(net->b->weight.grad().defined());
  });
}

TEST(Graph, AGradientOfEarlierBackwardPassesIsKept) {  // accumulation without no_sync
  const Tensor x = noise(1, {4, 3});
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<BranchesImpl>();
    DistributedDataParallel model(net, comm, finding());
    model(x, true, false).sum().backward();
    const Tensor of_a = net->a->weight.grad().clone();
    model(x, false, true).sum().backward();
    EXPECT_TRUE(same_bits({net->a->weight.grad()}, {of_a}));
    EXPECT_TRUE(net->b->weight.grad().defined());
  });
}

TEST(Graph, OnesThatNoRankUsesStayUndefined) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<BranchesImpl>();
    DistributedDataParallel model(net, comm, finding());
    model(noise(1, {4, 3}), true, false).sum().backward();
    EXPECT_TRUE(net->a->weight.grad().defined());
    EXPECT_FALSE(net->b->weight.grad().defined());
    EXPECT_FALSE(net->b->bias.grad().defined());
  });
}

TEST(Graph, AnUnusedOneIsNamedOnEveryRankWhereTheSearchIsOff) {
  on_ranks(3, [](Communicator& comm) {
    auto net = std::make_shared<BranchesImpl>();
    DistributedDataParallel model(net, comm);
    const Status status = failure_of([&] { model(noise(1, {4, 3}), true, comm.rank() != 1).sum().backward(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument) << status.message;
    EXPECT_NE(status.message.find("b.weight"), std::string::npos) << status.message;
    model.zero_grad();  // that step is void, the next one works
    model(noise(2, {4, 3}), true, true).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
  });
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    in = register_module("in", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) { return norm(in(x)).pow(3).sum(); }
  torch::nn::Linear in{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(Graph, TwoForwardsThenOneBackwardWithBuffers) {
  const Tensor x = noise(1, {6, 3}), y = noise(2, {6, 3});
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<NormedImpl>();
    DistributedDataParallel model(net, comm);
    NormedImpl alone;
    copy_state(*net, alone);
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      alone.zero_grad();
      (model(x) + model(y)).backward();
      (alone.forward(x) + alone.forward(y)).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(alone)), 1e-12);
      EXPECT_TRUE(same_bits(net->buffers(), alone.buffers()));
    }
  });
}

TEST(Graph, BuffersAreThoseOfRank0InTraining) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<NormedImpl>();
    DistributedDataParallel model(net, comm);
    const auto pass = [&] { return model(noise(static_cast<std::uint64_t>(comm.rank()), {6, 3})); };
    pass().backward();
    EXPECT_FALSE(same_bits_on_all_ranks(comm, {net->norm->running_mean}));
    NormedImpl rank0;
    copy_state(*net, rank0);
    pass();
    if (comm.rank() == 0) rank0.forward(noise(0, {6, 3}));
    if (comm.rank() == 0) { EXPECT_TRUE(same_bits({net->norm->running_mean}, {rank0.norm->running_mean})); }
    const std::int64_t version = net->norm->running_mean._version();
    model.before_forward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, net->buffers()));
    EXPECT_EQ(net->norm->running_mean._version(), version);
    EXPECT_EQ(net->norm->num_batches_tracked.item<std::int64_t>(), 2);
  });
}

// Forward without a graph, done again in backward: less memory for more time (Chen et al., 2016).
struct Again : torch::autograd::Function<Again> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    torch::NoGradGuard none;
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode with_graph(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    layer->forward(x).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

struct AgainImpl : torch::nn::Module {
  explicit AgainImpl(bool last) : last_again(last) {
    first = register_module("first", torch::nn::Linear(3, 3));
    second = register_module("second", torch::nn::Linear(3, 3));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& x) {
    const Tensor input = x.clone().requires_grad_(true);
    const Tensor y = torch::tanh(last_again ? first(input) : Again::apply(input, first.get()));
    return (last_again ? Again::apply(y, second.get()) : second(y)).sum();
  }
  bool last_again;
  torch::nn::Linear first{nullptr}, second{nullptr};
};

TEST(Graph, ABackwardInsideABackwardWorksAfterAnOrdinaryLayer) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<AgainImpl>(false);
    DistributedDataParallel model(net, comm);
    AgainImpl alone(false);
    copy_state(*net, alone);
    const Tensor x = noise(3, {4, 3});
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      model(share(x, comm)).backward();
      alone.zero_grad();
      (alone.forward(x) / 2).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(alone)), 1e-14);
    }
  });
}

TEST(Graph, ABackwardInsideABackwardThatComesFirstIsToldOnEveryRank) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<AgainImpl>(true);
    DistributedDataParallel model(net, comm);
    const Status status = failure_of([&] { model(noise(3, {4, 3})).backward(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument) << status.message;
    EXPECT_NE(status.message.find("first.weight"), std::string::npos) << status.message;
  });
}

struct ManyOutputsImpl : torch::nn::Module {
  ManyOutputsImpl() { in = register_module("in", torch::nn::Linear(3, 4)); }
  std::tuple<Tensor, std::vector<Tensor>, std::optional<Tensor>, int> forward(const Tensor& x) {
    return {in(x), {in(2 * x), in(3 * x)}, std::nullopt, 7};
  }
  torch::nn::Linear in{nullptr};
};

TEST(Graph, OutputsMayBeNested) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<ManyOutputsImpl>();
    DistributedDataParallel model(net, comm, finding());
    const auto [first, others, none, number] = model(noise(1, {4, 3}, torch::kFloat32));
    EXPECT_EQ(number, 7);
    others[1].sum().backward();  // a part of the outputs
    EXPECT_TRUE(net->in->weight.grad().defined());
    torch::nn::Sequential stack(torch::nn::Linear(3, 3), torch::nn::ReLU());
    DistributedDataParallel stacked(stack, comm);
    stacked(noise(1, {4, 3}, torch::kFloat32)).sum().backward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, stack->parameters()));
  });
}

}  // namespace
}  // namespace gradsync_test
