// Tensor parallelism: the weights of a linear layer spread over the ranks, in the two ways that fit together.
//
//   gradsync run -n 4 -- build/examples/training/tensor_parallel
//
// A layer y = x W + b. By columns each rank owns some output features: it needs all of x and makes a part of y. By rows it owns some
// input features: it needs a part of x and makes an addend of y. Columns, then rows, is a block of two layers that needs an exchange only at
// its two ends. Those come in two forms, and each is the other's mirror image in backward:
//
//                            entry: forward / backward         exit: forward / backward
//   replicated samples       nothing    / all-reduce           all-reduce     / nothing      (Megatron-LM, Shoeybi et al., 2019)
//   samples spread too       all-gather / reduce-scatter       reduce-scatter / all-gather   (Korthikanti et al., 2022)
//
// The program compares results, input gradients and weight gradients with one process, in f64, and fails above 1e-12.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "gradsync/gradsync.hpp"
#include "support/difference.hpp"
#include "support/tensor_view.hpp"

namespace {

using gradsync::Communicator;
using gradsync::ReduceOp;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;
using training::largest_difference;
using training::view_of;

constexpr double tolerance = 1e-12;

Tensor all_reduced(const Tensor& x, Communicator& comm) {
  auto sum = x.contiguous().clone();
  comm.all_reduce(view_of(sum), ReduceOp::sum);
  return sum;
}
// (n, f) on each rank to (size * n, f).
Tensor all_gathered(const Tensor& x, Communicator& comm) {
  const auto mine = x.contiguous();
  auto all = torch::empty({mine.size(0) * comm.size(), mine.size(1)}, mine.options());
  comm.all_gather(view_of(mine), view_of(all));
  return all;
}
// (size * n, f) on each rank to this rank's (n, f) of the sum.
Tensor reduce_scattered(const Tensor& x, Communicator& comm) {
  const auto all = x.contiguous();
  auto mine = torch::empty({all.size(0) / comm.size(), all.size(1)}, all.options());
  comm.reduce_scatter(view_of(all), view_of(mine), ReduceOp::sum);
  return mine;
}

Communicator& communicator_of(AutogradContext* context) {
  return *reinterpret_cast<Communicator*>(context->saved_data["comm"].toInt());
}
void remember(AutogradContext* context, Communicator* comm) {
  context->saved_data["comm"] = reinterpret_cast<std::int64_t>(comm);
}

using Exchange = Tensor (*)(const Tensor&, Communicator&);
Tensor nothing(const Tensor& x, Communicator&) { return x.view_as(x); }

// An exchange in forward, and its mirror image in backward.
template <Exchange in_forward, Exchange in_backward>
struct Exchanged : Function<Exchanged<in_forward, in_backward>> {
  static Tensor forward(AutogradContext* context, const Tensor& x, Communicator* comm) {
    remember(context, comm);
    return in_forward(x, *comm);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    return {in_backward(gradients[0], communicator_of(context)), Tensor()};
  }
};
using ReplicatedEntry = Exchanged<nothing, all_reduced>;
using ReplicatedExit = Exchanged<all_reduced, nothing>;
using SpreadEntry = Exchanged<all_gathered, reduce_scattered>;
using SpreadExit = Exchanged<reduce_scattered, all_gathered>;

struct Layer {
  Tensor weight, bias;  // (in, out), (out)
};
struct Block {
  Layer first, second;
};

Tensor leaf(const Tensor& values) { return values.detach().clone().requires_grad_(); }
// This rank's part of a dimension, a leaf of its own.
Tensor part(const Tensor& whole, std::int64_t dimension, const Communicator& comm) {
  const std::int64_t length = whole.size(dimension) / comm.size();
  return leaf(whole.narrow(dimension, comm.rank() * length, length));
}

Block part_of(const Block& whole, const Communicator& comm) {
  return {{part(whole.first.weight, 1, comm), part(whole.first.bias, 0, comm)},
          {part(whole.second.weight, 0, comm), leaf(whole.second.bias)}};
}

// Features of a rank; the middle is never whole anywhere.
struct Sizes {
  std::int64_t samples, inputs, middle, outputs;
};

struct Problem {
  Block block;
  Tensor x, result_gradient;  // (samples, inputs), (samples, outputs)
};

// The same on every rank.
Problem seeded_problem(const Sizes& n) {
  torch::manual_seed(11);
  const auto random = [](std::vector<std::int64_t> shape) { return leaf(torch::randn(shape, torch::kFloat64) / 4); };
  return {{{random({n.inputs, n.middle}), random({n.middle})}, {random({n.middle, n.outputs}), random({n.outputs})}},
          random({n.samples, n.inputs}),
          torch::randn({n.samples, n.outputs}, torch::kFloat64)};
}

double difference_of_part(const Tensor& mine, const Tensor& whole, std::int64_t dimension, const Communicator& comm) {
  return largest_difference(mine, part(whole, dimension, comm));
}

// The largest over result, input gradient and all parameter gradients of this rank's part.
double compare(const Block& mine, const Block& whole, const Communicator& comm) {
  return std::max({difference_of_part(mine.first.weight.grad(), whole.first.weight.grad(), 1, comm),
                   difference_of_part(mine.first.bias.grad(), whole.first.bias.grad(), 0, comm),
                   difference_of_part(mine.second.weight.grad(), whole.second.weight.grad(), 0, comm),
                   largest_difference(mine.second.bias.grad(), whole.second.bias.grad())});
}

Tensor middle_of(const Layer& layer, const Tensor& x) { return torch::tanh(x.matmul(layer.weight) + layer.bias); }

// Every rank has all samples. The bias of the rows' layer comes after the sum, or it would be added `size` times.
double replicated_samples(const Problem& problem, const Tensor& expected, Communicator& comm) {
  const auto mine = part_of(problem.block, comm);
  const auto x = leaf(problem.x);
  const auto middle = middle_of(mine.first, ReplicatedEntry::apply(x, &comm));
  const auto y = ReplicatedExit::apply(middle.matmul(mine.second.weight), &comm) + mine.second.bias;
  y.backward(problem.result_gradient);
  return std::max({largest_difference(y, expected), largest_difference(x.grad(), problem.x.grad()),
                   compare(mine, problem.block, comm)});
}

// Every rank has a part of the samples at both ends, and so only a part of the sum in the second bias's gradient.
double spread_samples(const Problem& problem, const Tensor& expected, Communicator& comm) {
  const auto mine = part_of(problem.block, comm);
  const auto x = part(problem.x, 0, comm);
  const auto middle = middle_of(mine.first, SpreadEntry::apply(x, &comm));
  const auto y = SpreadExit::apply(middle.matmul(mine.second.weight), &comm) + mine.second.bias;
  y.backward(part(problem.result_gradient, 0, comm).detach());
  comm.all_reduce(view_of(mine.second.bias.grad()), ReduceOp::sum);
  return std::max({difference_of_part(y, expected, 0, comm), difference_of_part(x.grad(), problem.x.grad(), 0, comm),
                   compare(mine, problem.block, comm)});
}

bool report(const char* what, double mine, Communicator& comm) {
  std::vector<double> largest = {mine};
  comm.all_reduce(gradsync::view(largest), ReduceOp::max);
  const bool equal = largest[0] <= tolerance;
  if (comm.rank() == 0)
    std::printf("%-20s %d ranks: largest difference from one process %.2g (at most %.0g): %s\n", what, comm.size(),
                largest[0], tolerance, equal ? "equal" : "NOT equal");
  return equal;
}

int run(Communicator& comm) {
  torch::set_num_threads(1);
  const auto problem = seeded_problem({6 * comm.size(), 20, 8 * comm.size(), 10});
  const auto y =
      middle_of(problem.block.first, problem.x).matmul(problem.block.second.weight) + problem.block.second.bias;
  y.backward(problem.result_gradient);
  const auto expected = y.detach();
  const bool replicated = report("replicated samples,", replicated_samples(problem, expected, comm), comm);
  const bool spread = report("samples spread too,", spread_samples(problem, expected, comm), comm);
  return replicated && spread ? 0 : 1;
}

}  // namespace

int main() try {
  auto comm = Communicator::create();
  return run(comm);
} catch (const std::exception& error) { return std::fprintf(stderr, "tensor_parallel: %s\n", error.what()), 1; }
