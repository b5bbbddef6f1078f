#include <gtest/gtest.h>

#include "ranks.hpp"

namespace gradsync_test {
namespace {

using gradsync::ErrorCode;
using gradsync::torch::DistributedDataParallel;
using gradsync::torch::DistributedDataParallelOptions;

struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool sparse = true) {
    first = register_module("first", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(sparse)));
    second = register_module("second", torch::nn::Embedding(torch::nn::EmbeddingOptions(8, 3).sparse(sparse)));
    last = register_module("last", torch::nn::Linear(3, 2));
    to(torch::kFloat64);
  }
  Tensor forward(const Tensor& words, bool use_second) {
    Tensor x = first(words);
    if (use_second) x = x + second(words % 8);
    return torch::tanh(last(x)).sum();
  }
  torch::nn::Embedding first{nullptr}, second{nullptr};
  torch::nn::Linear last{nullptr};
};

Tensor words(int rank, int step) {
  std::vector<std::int64_t> all;
  for (std::int64_t k = 0; k < 6; ++k) all.push_back((k * k + 3 * rank + 5 * step) % 10);  // some twice
  return torch::tensor(all, torch::kInt64);
}

void expect_as_dense(gradsync::Overlap overlap) {
  WordsImpl alone(false), start(false);
  copy_state(alone, start);
  torch::optim::SGD optimizer(alone.parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    for (const Tensor& parameter : alone.parameters()) parameter.mutable_grad().reset();
    ((alone.forward(words(0, step), false) + alone.forward(words(1, step), false)) / 2).backward();
    optimizer.step();
  }
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<WordsImpl>();
    copy_state(start, *net);
    DistributedDataParallelOptions options;
    options.sync.find_unused = true;
    options.sync.overlap = overlap;
    options.sync.overlap_only_if_worth_it = false;
    DistributedDataParallel model(net, comm, options);
    torch::optim::SGD own(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      model.zero_grad();
      model(words(comm.rank(), step), false).backward();
      EXPECT_FALSE(net->second->weight.grad().defined());
      EXPECT_TRUE(net->first->weight.grad().is_sparse());
      model.step(own);
    }
    model.synchronize();
    EXPECT_FALSE(net->second->weight.grad().defined());
    EXPECT_LE(largest_difference(parameters_of(*net), parameters_of(alone)), 1e-14);
    EXPECT_TRUE(same_bits_on_all_ranks(comm, parameters_of(*net)));
  });
}

TEST(Sparse, EqualsTheDenseReferenceAndLeavesTheUnusedOneUndefined) { expect_as_dense(gradsync::Overlap::backward); }
TEST(Sparse, WorksWithoutABarrier) { expect_as_dense(gradsync::Overlap::backward_forward); }

TEST(Sparse, AccumulatesUnderNoSync) {
  WordsImpl alone(false);
  for (int rank = 0; rank < 2; ++rank) {
    (alone.forward(words(rank, 0), true) / 2).backward();
    (alone.forward(words(rank, 1), false) / 2).backward();
  }
  on_ranks(2, [&](Communicator& comm) {
    auto net = std::make_shared<WordsImpl>();
    copy_state(alone, *net);
    DistributedDataParallelOptions options;
    options.sync.find_unused = true;
    DistributedDataParallel model(net, comm, options);
    {
      const auto local = model.no_sync();
      model(words(comm.rank(), 0), true).backward();
    }
    model(words(comm.rank(), 1), false).backward();  // `second` only in the pass before
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(alone)), 1e-14);
  });
}

struct HiddenImpl : torch::nn::Module {
  HiddenImpl() { table = register_parameter("table", noise(1, {6, 2})); }
  Tensor forward(const Tensor& words) { return torch::embedding(table, words, -1, false, true).sum(); }
  Tensor table;
};

TEST(Sparse, AGradientThatWasNotDeclaredIsNamed) {
  on_ranks(2, [](Communicator& comm) {
    const Tensor three = torch::tensor({1, 3, 1}, torch::kInt64);
    auto net = std::make_shared<HiddenImpl>();
    DistributedDataParallel model(net, comm);
    const Status status = failure_of([&] { model(three).backward(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_NE(status.message.find("gradient of table is sparse Double [6, 2], expected Double [6, 2]: name it in"),
              std::string::npos)
        << status.message;
    auto declared = std::make_shared<HiddenImpl>();
    DistributedDataParallelOptions options;
    options.sparse_parameters = {"table"};
    DistributedDataParallel other(declared, comm, options);
    other(three).backward();
    EXPECT_TRUE(declared->table.grad().is_sparse());
    EXPECT_TRUE(declared->table.grad().is_coalesced());
    EXPECT_EQ(declared->table.grad().to_dense().sum().item<double>(), 6);
  });
}

}  // namespace
}  // namespace gradsync_test
