// One rank of the overlap benchmark: trains a model on random data in the ways that the driver (run) asks for.
//
//   overlap_rank MODEL BATCH      rank, size and rendezvous from the environment
//
// Reads lines "WAY STEPS" from standard input, one at a time; runs that many steps in a row, between barriers of all ranks,
// and answers with one JSON line. Ways:
//   local      the plain model, no exchange          forward   gradients exchanged under backward and the next forward
//   backward   gradients exchanged under backward    exchange  only the exchange: every bucket, one after another
//   lockstep   the plain model, and a barrier after each backward: what waiting for the slower rank costs by itself
// Other questions: "equal 0", are all replicas equal to the bit; "memory 0", bytes this process has. A way's model exists
// from its first step on.
#include <torch/torch.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gradsync/torch/distributed_data_parallel.hpp"

namespace {

namespace nn = torch::nn;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

nn::Conv2d conv(int in, int out, int kernel, int stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct BlockImpl : nn::Module {
  BlockImpl(int in, int out, int stride)
      : first(register_module("first", conv(in, out, 3, stride))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(out))),
        second(register_module("second", conv(out, out, 3, 1))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out)
      skip = register_module("skip", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = second_norm(second(torch::relu(first_norm(first(x)))));
    return torch::relu(y + (skip.is_empty() ? x : skip->forward(x)));
  }
  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
  nn::Sequential skip{nullptr};
};
TORCH_MODULE(Block);

// ResNet-18 for 32 x 32 images: 11.2 million parameters.
nn::Sequential resnet18() {
  nn::Sequential net(conv(3, 64, 3, 1), nn::BatchNorm2d(64), nn::ReLU());
  int in = 64;
  for (const auto& [out, stride] : {std::pair(64, 1), std::pair(128, 2), std::pair(256, 2), std::pair(512, 2)}) {
    net->push_back(Block(in, out, stride));
    net->push_back(Block(out, out, 1));
    in = out;
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(512, 10));
  return net;
}

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(512, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(), nn::Linear(1024, 1024),
                        nn::ReLU(), nn::Linear(1024, 10));
}

nn::Sequential model_named(const std::string& name) {
  torch::manual_seed(1);
  return name == "mlp" ? mlp() : resnet18();
}

torch::Tensor images(const std::string& name, int batch) {
  return name == "mlp" ? torch::randn({batch, 512}) : torch::randn({batch, 3, 32, 32});
}

struct Result {
  double seconds = 0;           // of a step
  double backward_s = 0;        // of which backward, to the last gradient
  double hidden = 0;            // share of the communication that was hidden
  gradsync::StepTimeline last;  // of the last step
};

using Replica = gradsync::torch::DistributedDataParallel<nn::SequentialImpl>;

class Rank {
 public:
  Rank(const std::string& model, int batch)
      : comm_(gradsync::Communicator::create()),
        model_(model),
        x_(images(model, batch)),
        y_(torch::randint(0, 10, {batch})) {}

  nlohmann::json run(const std::string& way, int steps) {
    make(way);
    comm_.barrier();
    Result result;
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < steps; ++i) step(way, result);
    if (way == "forward") forward_->replica.synchronize();
    result.seconds = seconds_since(start) / steps;
    comm_.barrier();
    return to_json(way, result);
  }
  std::size_t bytes() const {
    std::size_t total = 0;
    for (const auto& p : model_named(model_)->parameters()) total += static_cast<std::size_t>(p.numel()) * 4;
    return total;
  }
  bool replicas_equal() { return (!backward_ || equal(*backward_)) && (!forward_ || equal(*forward_)); }
  int rank() const { return comm_.rank(); }

 private:
  struct Shared {
    Shared(nn::Sequential module, gradsync::Overlap overlap, gradsync::Communicator& comm)
        : replica(module, comm, options(overlap)),
          optimizer(module->parameters(), 0.01),
          net(module) {}
    static gradsync::torch::DistributedDataParallelOptions options(gradsync::Overlap overlap) {
      gradsync::torch::DistributedDataParallelOptions o;
      o.sync.overlap = overlap;
      o.broadcast_buffers = false;  // neither does the peer's harness count on equal statistics
      return o;
    }
    Replica replica;
    torch::optim::SGD optimizer;
    nn::Sequential net;
  };

  struct Plain {
    explicit Plain(nn::Sequential module) : optimizer(module->parameters(), 0.01), net(module) {}
    torch::optim::SGD optimizer;
    nn::Sequential net;
  };

  void make(const std::string& way) {
    using gradsync::Overlap;
    if ((way == "local" || way == "lockstep") && !plain_) plain_ = std::make_unique<Plain>(model_named(model_));
    if ((way == "backward" || way == "exchange") && !backward_)
      backward_ = std::make_unique<Shared>(model_named(model_), Overlap::backward, comm_);
    if (way == "forward" && !forward_)
      forward_ = std::make_unique<Shared>(model_named(model_), Overlap::backward_forward, comm_);
  }
  void step(const std::string& way, Result& result) {
    if (way == "local" || way == "lockstep") step_plain(way == "lockstep", result);
    else if (way == "backward") step_shared(*backward_, result);
    else if (way == "forward") step_shared(*forward_, result);
    else if (way == "exchange") exchange();
    else throw std::invalid_argument("way '" + way + "', expected local, lockstep, backward, forward or exchange");
  }
  void step_plain(bool in_step, Result& result) {
    plain_->optimizer.zero_grad();
    torch::Tensor loss = torch::cross_entropy_loss(plain_->net->forward(x_), y_);
    const Clock::time_point start = Clock::now();
    loss.backward();
    result.backward_s = seconds_since(start);
    if (in_step) comm_.barrier();
    plain_->optimizer.step();
  }
  void step_shared(Shared& shared, Result& result) {
    // Zeroing in place, as the plain model does; under the next forward gradients are not to be touched.
    if (&shared == forward_.get()) shared.replica.zero_grad();
    else shared.optimizer.zero_grad();
    torch::cross_entropy_loss(shared.replica(x_), y_).backward();
    shared.replica.step(shared.optimizer);
    result.last = shared.replica.sync().timeline();
    result.hidden = result.last.hidden_share();
  }
  void exchange() {
    gradsync::GradientSync& sync = backward_->replica.sync();
    for (const auto& bucket : sync.timeline().buckets) {
      if (scratch_.bytes() < bucket.bytes) scratch_ = comm_.allocate(bucket.bytes);
      comm_.all_reduce(gradsync::View{scratch_.data(), bucket.bytes / 4, gradsync::DType::f32},
                       gradsync::ReduceOp::avg);
    }
  }
  bool equal(Shared& shared) {
    shared.replica.synchronize();
    for (const auto& p : shared.net->parameters()) {
      torch::Tensor most = p.detach().contiguous().clone();
      comm_.all_reduce(gradsync::View{most.data_ptr(), static_cast<std::size_t>(most.numel()), gradsync::DType::f32},
                       gradsync::ReduceOp::max);
      if (!torch::equal(most, p.detach())) return false;
    }
    return true;
  }
  static nlohmann::json to_json(const std::string& way, const Result& result) {
    nlohmann::json line = {{"way", way}, {"ms", result.seconds * 1e3}, {"backward_ms", result.backward_s * 1e3}};
    if (way == "backward" || way == "forward") {
      line["hidden"] = result.hidden;
      line["waited_ms"] = result.last.waited_s * 1e3;
      for (const auto& b : result.last.buckets)
        line["buckets"].push_back({{"bytes", b.bytes},
                                   {"ready_ms", b.ready_s * 1e3},
                                   {"launched_ms", b.launched_s * 1e3},
                                   {"done_ms", b.done_s * 1e3}});
    }
    return line;
  }

  gradsync::Communicator comm_;
  std::string model_;
  torch::Tensor x_, y_;
  std::unique_ptr<Plain> plain_;
  std::unique_ptr<Shared> backward_, forward_;
  gradsync::Memory scratch_;
};

// Bytes, by the kernel's names: VmHWM is the most that was resident; Rss counts pages that several processes map in each of
// them, Pss shares them out.
nlohmann::json memory() {
  nlohmann::json found;
  std::string name, unit;
  std::size_t kib = 0;
  for (const char* path : {"/proc/self/status", "/proc/self/smaps_rollup"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      if (!(words >> name >> kib >> unit) || unit != "kB") continue;
      if (name == "VmHWM:" || name == "Rss:" || name == "Pss:" || name == "RssShmem:" || name == "RssAnon:")
        found[name] = kib << 10;
    }
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("expected: overlap_rank MODEL BATCH");
  torch::set_num_threads(1);
  Rank rank(argv[1], std::stoi(argv[2]));
  std::cout << nlohmann::json{{"bytes", rank.bytes()}, {"rank", rank.rank()}} << std::endl;
  std::string way;
  for (int steps = 0; std::cin >> way >> steps;) {
    if (way == "memory") std::cout << memory() << std::endl;
    else if (way == "equal") std::cout << nlohmann::json{{"equal", rank.replicas_equal()}} << std::endl;
    else std::cout << rank.run(way, steps) << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
