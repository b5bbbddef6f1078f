// Models that differ between ranks, and models that change after wrapping.
#include <gtest/gtest.h>

#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

struct OpenImpl : torch::nn::Module {
  OpenImpl() {
    base = register_module("base", torch::nn::Linear(3, 2));
    head = register_module("head", torch::nn::Linear(2, 2));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = head(torch::tanh(base(x)));
    for (const Tensor& more : extra) y = y * more;
    return y.sum();
  }
  void add(const std::string& name) { extra.push_back(register_parameter(name, torch::ones({2}))); }
  void replace() {
    head = torch::nn::Linear(2, 2);
    replace_module("head", head);
  }
  void freeze(bool on) {
    for (const Tensor& parameter : base->parameters()) parameter.set_requires_grad(!on);
  }
  torch::nn::Linear base{nullptr}, head{nullptr};
  std::vector<Tensor> extra;
};

const Tensor& input() {
  static const Tensor x = noise(1, {4, 3}, torch::kFloat32);
  return x;
}

TEST(Changes, AModelWithOneMoreParameterIsFoundOnEveryRank) {
  on_ranks(3, [](Communicator& comm) {
    auto net = std::make_shared<OpenImpl>();
    if (comm.rank() == 1) net->add("surplus");
    const std::vector<Tensor> before = parameters_of(*net);
    const Status status = failure_of([&] { DistributedDataParallel model(net, comm); });
    EXPECT_EQ(status.code, ErrorCode::mismatch);
    for (const char* part : {"rank 0", "rank 1", "4", "5", "surplus"})
      EXPECT_NE(status.message.find(part), std::string::npos) << part << " in: " << status.message;
    EXPECT_TRUE(same_bits(parameters_of(*net), before));
  });
}

TEST(Changes, DifferentBuffersAndFrozenParametersAreFoundToo) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<OpenImpl>();
    net->register_buffer("table", torch::zeros({comm.rank() + 1}, torch::kInt16));
    EXPECT_EQ(failure_of([&] { DistributedDataParallel model(net, comm); }).code, ErrorCode::mismatch);
    auto other = std::make_shared<OpenImpl>();
    other->freeze(comm.rank() == 1);
    EXPECT_EQ(failure_of([&] { DistributedDataParallel model(other, comm); }).code, ErrorCode::mismatch);
  });
}

TEST(Changes, WhatCannotBeTrainedIsNamedOnEveryRank) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<OpenImpl>();
    if (comm.rank() == 1) net->register_parameter("odd", torch::zeros({2}, torch::kComplexFloat));
    const Status status = failure_of([&] { DistributedDataParallel model(net, comm); });
    EXPECT_EQ(status.code, ErrorCode::unsupported);
    EXPECT_NE(status.message.find("parameter odd is of type ComplexFloat"), std::string::npos) << status.message;
  });
}

void expect_named(const std::function<void(OpenImpl&)>& change, const std::string& message,
                  bool frozen_before = false) {
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<OpenImpl>();
    net->freeze(frozen_before);
    DistributedDataParallel model(net, comm);
    model(input()).backward();
    change(*net);
    const Status status = failure_of([&] { model(input()); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.message, message + " after wrapping: call rewrap() on every rank");
    model.rewrap();
    model.zero_grad();
    model(input() * (1 + comm.rank())).backward();
    EXPECT_TRUE(same_bits_on_all_ranks(comm, gradients_of(*net)));
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
    double sum = 0;
    for (const Tensor& gradient : gradients_of(*net)) sum += gradient.abs().sum().item<double>();
    EXPECT_GT(sum, 0);
  });
}

TEST(Changes, AnAddedParameterIsNamedAtTheNextForward) {
  expect_named([](OpenImpl& net) { net.add("more"); }, "parameter more was added");
}
TEST(Changes, AReplacedParameterIsNamedAtTheNextForward) {
  expect_named([](OpenImpl& net) { net.replace(); }, "parameter head.weight was replaced");
}
TEST(Changes, AnUnfrozenParameterIsNamedAtTheNextForward) {
  expect_named([](OpenImpl& net) { net.freeze(false); }, "parameter base.weight was unfrozen", true);
}
TEST(Changes, AFrozenParameterIsNamedAtTheNextForward) {
  expect_named([](OpenImpl& net) { net.freeze(true); }, "parameter base.weight was frozen");
}
TEST(Changes, AConvertedParameterIsNamedAtTheNextForward) {
  expect_named(
      [](OpenImpl& net) {
        net.head->weight.set_data(torch::ones({2, 2}));
        net.base->bias.set_data(torch::ones({1}));
      },
      "parameter base.bias was changed in type or shape");
}

TEST(Changes, AFrozenParameterCountsAsUnusedWhereTheSearchIsOn) {
  on_ranks(2, [](Communicator& comm) {
    auto net = std::make_shared<OpenImpl>();
    DistributedDataParallelOptions options;
    options.sync.find_unused = true;
    DistributedDataParallel model(net, comm, options);
    net->freeze(true);
    model(input()).backward();
    EXPECT_FALSE(net->base->weight.grad().defined());
    EXPECT_TRUE(net->head->weight.grad().defined());
  });
}

}  // namespace
}  // namespace gradsync_test
