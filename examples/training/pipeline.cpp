// Pipeline and data parallelism together: two replicas of a model, each cut into two stages that sit on a rank of their own.
//
//   gradsync run -n 4 -- build/examples/training/pipeline
//
//               stage 0          stage 1
//   replica 0   rank 0  <----->  rank 1      along a replica: activations forward, their gradients back (send, recv)
//                 |                |
//   replica 1   rank 2  <----->  rank 3      along a stage: the mean of the parameters' gradients (GradientSync)
//
// Micro-batches go through in the order "one forward, one backward" (PipeDream-Flush; Narayanan et al., Memory-Efficient
// Pipeline-Parallel DNN Training, 2021): a stage holds the activations of no more micro-batches than there are stages from it on. Every rank also trains the whole model on
// the whole batch by itself; the program fails if a parameter differs by more than 1e-12. All numbers are f64.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <exception>
#include <vector>

#include "gradsync/gradsync.hpp"
#include "support/difference.hpp"
#include "support/tensor_view.hpp"

namespace {

constexpr int stages = 2, replicas = 2;
constexpr std::int64_t inputs = 12, width = 32, outputs = 5;
constexpr std::int64_t micro_batches = 4, micro_batch = 6, global_batch = replicas * micro_batches * micro_batch;
constexpr std::int64_t steps = 40;
constexpr double learning_rate = 0.1, tolerance = 1e-12;

torch::nn::Sequential stage_of_model(int stage) {
  torch::nn::Sequential layers;
  if (stage == 0) {
    layers->push_back(torch::nn::Linear(inputs, width));
    layers->push_back(torch::nn::Tanh());
    layers->push_back(torch::nn::Linear(width, width));
    layers->push_back(torch::nn::Tanh());
  } else {
    layers->push_back(torch::nn::Linear(width, width));
    layers->push_back(torch::nn::Tanh());
    layers->push_back(torch::nn::Linear(width, outputs));
  }
  layers->to(torch::kFloat64);
  return layers;
}

// The same on every rank.
std::vector<torch::nn::Sequential> seeded_model() {
  torch::manual_seed(7);
  std::vector<torch::nn::Sequential> model;
  for (int stage = 0; stage < stages; ++stage) model.push_back(stage_of_model(stage));
  return model;
}

struct Batch {
  torch::Tensor inputs, targets;
  Batch rows(std::int64_t begin, std::int64_t count) const {
    return {inputs.narrow(0, begin, count), targets.narrow(0, begin, count)};
  }
};

Batch global_batch_of(std::int64_t step) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 + step));
  const auto x = torch::randn({global_batch, inputs}, torch::kFloat64);
  return {x, torch::sin(x.narrow(1, 0, outputs) * 2) + x.narrow(1, outputs, outputs)};
}

void descend(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_gradients;
  for (const auto& parameter : parameters) parameter.sub_(learning_rate * parameter.grad());
}

// One process, the whole model, the whole batch.
void train_alone(std::vector<torch::nn::Sequential>& model) {
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto batch = global_batch_of(step);
    for (auto& stage : model) stage->zero_grad();
    torch::mse_loss(model[1]->forward(model[0]->forward(batch.inputs)), batch.targets).backward();
    for (auto& stage : model) descend(stage->parameters());
  }
}

// One stage of one replica.
class StageWorker {
 public:
  StageWorker(torch::nn::Sequential layers, gradsync::Communicator& replica, gradsync::Communicator& peers)
      : layers_(std::move(layers)),
        replica_(replica),
        sync_(peers, described(layers_)) {}

  const torch::nn::Sequential& layers() const { return layers_; }

  // `mine`: the replica's share of the batch. Every rank has it; the first stage reads the inputs, the last the targets.
  void step(const Batch& mine) {
    sync_.begin_step();
    use_bucket_gradients();
    for (const auto& parameter : layers_->parameters()) parameter.grad().zero_();
    const std::int64_t ahead = std::min<std::int64_t>(stages - 1 - stage(), micro_batches);
    for (std::int64_t m = 0; m < ahead; ++m) forward(mine, m);
    for (std::int64_t m = ahead; m < micro_batches; ++m) {
      forward(mine, m);
      backward();
    }
    for (std::int64_t m = 0; m < ahead; ++m) backward();
    for (auto& message : sent_) message.work.wait();
    sent_.clear();

    for (std::size_t p = layers_->parameters().size(); p-- > 0;) sync_.ready(p);
    sync_.finish();
    descend(layers_->parameters());
  }

 private:
  struct InFlight {
    torch::Tensor input, result;  // the result is the loss on the last stage
  };
  struct Sent {
    torch::Tensor tensor;  // lives until the work is done
    gradsync::Work work;
  };

  int stage() const { return replica_.rank(); }
  bool last() const { return stage() == stages - 1; }

  static std::vector<gradsync::Parameter> described(const torch::nn::Sequential& layers) {
    std::vector<gradsync::Parameter> parameters;
    for (const auto& item : layers->named_parameters())
      parameters.push_back({item.key(), item.value().sizes().vec(), gradsync::DType::f64, false});
    return parameters;
  }

  // Backward adds straight into the buckets.
  void use_bucket_gradients() {
    if (generation_ == sync_.generation() && used_) return;
    std::size_t index = 0;
    for (auto& parameter : layers_->parameters()) {
      const auto view = sync_.gradient(index++);
      parameter.mutable_grad() =
          torch::from_blob(view.data, parameter.sizes(), parameter.options().requires_grad(false));
    }
    generation_ = sync_.generation();
    used_ = true;
  }

  void forward(const Batch& mine, std::int64_t m) {
    const auto batch = mine.rows(m * micro_batch, micro_batch);
    auto input = batch.inputs;
    if (stage() > 0) {
      input = torch::empty({micro_batch, width}, torch::kFloat64);
      replica_.recv(training::view_of(input), stage() - 1);
      input.requires_grad_();
    }
    auto result = layers_->forward(input);
    // The mean over the replica's micro-batches; the mean over the replicas follows in GradientSync.
    if (last()) result = torch::mse_loss(result, batch.targets) / static_cast<double>(micro_batches);
    else send(result.detach(), stage() + 1);
    in_flight_.push_back({input, result});
  }

  void backward() {
    const InFlight oldest = in_flight_.front();
    in_flight_.pop_front();
    if (last()) {
      oldest.result.backward();
    } else {
      auto gradient = torch::empty_like(oldest.result);
      replica_.recv(training::view_of(gradient), stage() + 1);
      oldest.result.backward(gradient);
    }
    if (stage() > 0) send(oldest.input.grad(), stage() - 1);
  }

  // Not blocking: two neighbours that send to each other at the same time must not wait for each other.
  void send(const torch::Tensor& tensor, int to) {
    const auto values = tensor.contiguous();
    sent_.push_back({values, replica_.send_async(training::view_of(values), to)});
  }

  torch::nn::Sequential layers_;
  gradsync::Communicator& replica_;
  gradsync::GradientSync sync_;
  std::uint64_t generation_ = 0;
  bool used_ = false;
  std::deque<InFlight> in_flight_;
  std::vector<Sent> sent_;
};

double largest_difference(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  double largest = 0;
  const auto left = a->parameters(), right = b->parameters();
  for (std::size_t i = 0; i < left.size(); ++i)
    largest = std::max(largest, training::largest_difference(left[i], right[i]));
  return largest;
}

int run(gradsync::Communicator& comm) {
  if (comm.size() != stages * replicas)
    return std::fprintf(stderr, "pipeline: %d ranks, expected %d\n", comm.size(), stages * replicas), 1;
  torch::set_num_threads(1);
  const int replica = comm.rank() / stages, stage = comm.rank() % stages;
  auto along_replica = comm.split(replica);  // its ranks are the stages
  auto along_stage = comm.split(stage);      // its ranks are the replicas

  StageWorker worker(seeded_model()[static_cast<std::size_t>(stage)], along_replica, along_stage);
  auto layers = worker.layers();
  for (std::int64_t step = 0; step < steps; ++step)
    worker.step(global_batch_of(step).rows(replica * micro_batches * micro_batch, micro_batches * micro_batch));

  auto alone = seeded_model();
  train_alone(alone);
  std::vector<double> difference = {largest_difference(layers, alone[static_cast<std::size_t>(stage)])};
  std::vector<double> moved = {largest_difference(layers, seeded_model()[static_cast<std::size_t>(stage)])};
  comm.all_reduce(gradsync::view(difference), gradsync::ReduceOp::max);
  comm.all_reduce(gradsync::view(moved), gradsync::ReduceOp::min);
  const bool equal = difference[0] <= tolerance && moved[0] > 0.01;  // equal, and something was learnt
  if (comm.rank() == 0)
    std::printf(
        "%d stages x %d replicas, %lld steps of %lld micro-batches: largest difference from one process %.2g (at most "
        "%.0g): %s\n",
        stages, replicas, static_cast<long long>(steps), static_cast<long long>(micro_batches), difference[0],
        tolerance, equal ? "equal" : "NOT equal");
  return equal ? 0 : 1;
}

}  // namespace

int main() try {
  auto comm = gradsync::Communicator::create();
  return run(comm);
} catch (const std::exception& error) { return std::fprintf(stderr, "pipeline: %s\n", error.what()), 1; }
