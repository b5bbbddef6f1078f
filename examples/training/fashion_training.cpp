#include "fashion_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "gradsync/torch/checkpoint.hpp"
#include "gradsync/torch/sync_batch_norm.hpp"
#include "support/fingerprint.hpp"
#include "support/settings.hpp"

namespace training {
namespace {

constexpr std::uint64_t settling_steps = 10;  // first steps, not measured: memory is touched, buckets are planned
constexpr std::uint64_t warm_up_steps = 100;  // of the learning rate
constexpr double momentum = 0.9, weight_decay = 5e-4;
constexpr std::size_t evaluation_batch = 250;

NormFactory norms(const FashionSettings& settings, gradsync::Communicator& comm) {
  if (settings.reference)
    return [](std::int64_t channels) { return torch::nn::AnyModule(torch::nn::BatchNorm2d(channels)); };
  return [&comm](std::int64_t channels) {
    return torch::nn::AnyModule(gradsync::torch::SyncBatchNorm(torch::nn::BatchNormOptions(channels), comm));
  };
}

ConvolutionalNet seeded_net(const FashionSettings& settings, gradsync::Communicator& comm) {
  torch::manual_seed(settings.seed);
  return ConvolutionalNet(norms(settings, comm));
}

gradsync::torch::DistributedDataParallelOptions replica_options(const FashionSettings& settings) {
  gradsync::torch::DistributedDataParallelOptions options;
  options.broadcast_buffers = false;  // SyncBatchNorm computes the same statistics on every rank
  options.sync.deterministic = settings.deterministic;
  options.sync.check_finite = settings.check_finite;
  options.sync.bucket_bytes = settings.bucket_bytes;
  if (settings.overlap_forward) options.sync.overlap = gradsync::Overlap::backward_forward;
  return options;
}

gradsync::torch::DistributedSamplerOptions sampler_options(const FashionSettings& settings) {
  gradsync::torch::DistributedSamplerOptions options;
  options.seed = settings.seed;
  return options;
}

// Collective.
FashionSettings checked(FashionSettings settings, gradsync::Communicator& comm) {
  if (settings.batch == 0) throw std::invalid_argument("--batch is 0, expected at least 1");
  if (settings.reference && comm.size() > 1)
    throw std::invalid_argument(fmt::format("--reference with {} workers, expected 1", comm.size()));
  require_equal_settings({{"--batch", static_cast<double>(settings.batch)},
                          {"--epochs", static_cast<double>(settings.epochs)},
                          {"--steps", static_cast<double>(settings.steps)},
                          {"--lr", settings.learning_rate},
                          {"--seed", static_cast<double>(settings.seed)},
                          {"the number of --checkpoint", settings.checkpoint.empty() ? 0.0 : 1.0},
                          {"the number of --resume", settings.resume.empty() ? 0.0 : 1.0}},
                         comm);
  return settings;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

FashionTraining::FashionTraining(FashionSettings settings, gradsync::Communicator& comm)
    : settings_(checked(std::move(settings), comm)),
      comm_(comm),
      train_(load_fashion_mnist(settings_.data, Part::train)),
      test_(load_fashion_mnist(settings_.data, Part::test)),
      net_(seeded_net(settings_, comm)),
      optimizer_(net_->parameters(),
                 torch::optim::SGDOptions(settings_.learning_rate).momentum(momentum).weight_decay(weight_decay)),
      sampler_(train_.size(), comm.rank(), comm.size(), sampler_options(settings_)),
      progress_(stdout, is_terminal(stdout), comm.rank() != 0) {
  torch::set_num_threads(settings_.threads);
  if (steps_per_epoch() == 0)
    throw std::invalid_argument(fmt::format("--batch {} with {} workers is more than the {} training images",
                                            settings_.batch, comm.size(), train_.size()));
  if (!settings_.reference)
    replica_ = std::make_unique<gradsync::torch::DistributedDataParallel<ConvolutionalNetImpl>>(
        net_, comm, replica_options(settings_));
}

// The last images of an epoch that do not fill every worker's batch are left out; the next epoch has another order.
std::uint64_t FashionTraining::steps_per_epoch() const {
  return train_.size() / settings_.batch / static_cast<std::uint64_t>(comm_.size());
}

std::uint64_t FashionTraining::steps_total() const { return settings_.epochs * steps_per_epoch(); }

// Up linearly, then down linearly to 0 over all epochs, however early --steps ends.
double FashionTraining::learning_rate(std::uint64_t step) const {
  const auto up = static_cast<double>(step + 1) / static_cast<double>(warm_up_steps);
  const auto down = 1 - static_cast<double>(step) / static_cast<double>(steps_total());
  return settings_.learning_rate * std::min(1.0, up) * down;
}

torch::Tensor FashionTraining::forward(const torch::Tensor& images) {
  return replica_ ? (*replica_)(images) : net_->forward(images);
}

void FashionTraining::resume() {
  const auto counters = gradsync::torch::load_checkpoint(settings_.resume, *net_, optimizer_, comm_);
  const auto epochs = counters.numbers.find("epochs");
  if (epochs == counters.numbers.end() || epochs->second < 0)
    throw std::runtime_error(settings_.resume + ": no number of epochs, expected a checkpoint of this program");
  first_epoch_ = static_cast<std::uint64_t>(epochs->second);
  step_ = first_epoch_ * steps_per_epoch();
  progress_.line(fmt::format("resuming after {} epochs", first_epoch_));
}

RunRecord FashionTraining::run() {
  if (!settings_.resume.empty()) resume();
  began_s_ = now_s();
  const std::uint64_t end = settings_.steps ? std::min(settings_.steps, steps_total()) : steps_total();
  for (std::uint64_t epoch = first_epoch_; epoch < settings_.epochs && step_ < end; ++epoch) {
    train_epoch(epoch);
    end_epoch(epoch);
  }
  finish_record(now_s() - began_s_);
  return record_;
}

void FashionTraining::train_epoch(std::uint64_t epoch) {
  const std::uint64_t end_of_run = settings_.steps ? std::min(settings_.steps, steps_total()) : steps_total();
  const std::uint64_t end = std::min(end_of_run, (epoch + 1) * steps_per_epoch());
  net_->train();
  sampler_.set_epoch(epoch);
  sampler_.reset();
  for (; step_ < end; ++step_) {
    auto indices = sampler_.next(settings_.batch);
    if (settings_.reverse_batches) std::reverse(indices->begin(), indices->end());
    train_step(train_.batch(*indices));
    progress_.show({fmt::format("epoch {}/{}", epoch + 1, settings_.epochs),
                    fmt::format("loss {:.3f}", local_losses_.back()), step_ + 1, end_of_run, now_s() - began_s_});
  }
  if (replica_) replica_->synchronize();
}

void FashionTraining::train_step(const ImageBatch& batch) {
  for (auto& group : optimizer_.param_groups())
    static_cast<torch::optim::SGDOptions&>(group.options()).lr(learning_rate(step_));
  replica_ ? replica_->zero_grad() : optimizer_.zero_grad();
  StepSpans spans;
  spans.begin_s = now_s();
  const auto loss = torch::nn::functional::cross_entropy(forward(batch.images), batch.labels);
  spans.forward_end_s = now_s() - spans.begin_s;
  loss.backward();  // gradients leave while it runs
  spans.backward_end_s = now_s() - spans.begin_s;
  replica_ ? replica_->step(optimizer_) : static_cast<void>(optimizer_.step());
  spans.end_s = now_s() - spans.begin_s;
  local_losses_.push_back(loss.item<double>());
  note_step(spans);
}

void FashionTraining::note_step(const StepSpans& spans) {
  step_s_.push_back(spans.end_s);
  // With overlap of forward the exchange is not over yet: those steps are not drawn.
  if (!replica_ || step_s_.size() <= settling_steps || replica_->sync().overlaps_forward()) return;
  StepSpans whole = spans;
  whole.sync = replica_->sync().timeline();
  const double under_way_s = whole.sync.communication_s();
  record_.communication.under_way_s += under_way_s;
  record_.communication.exposed_s += under_way_s * (1 - whole.sync.hidden_share());
  ++steps_measured_;
  trace_.add(std::move(whole));
}

void FashionTraining::end_epoch(std::uint64_t epoch) {
  // Every worker's batches are of one size: the mean over the workers is the mean over the samples.
  comm_.all_reduce(gradsync::view(local_losses_), gradsync::ReduceOp::avg);
  record_.losses.insert(record_.losses.end(), local_losses_.begin(), local_losses_.end());
  local_losses_.clear();
  record_.evaluations.push_back(evaluate());
  const auto& now = record_.evaluations.back();
  progress_.line(
      fmt::format("epoch {}: test accuracy {:.2f} %, test loss {:.4f}", epoch + 1, 100 * now.accuracy, now.loss));
  if (settings_.checkpoint.empty() || step_ % steps_per_epoch() != 0) return;
  gradsync::torch::CheckpointCounters counters;
  counters.numbers["epochs"] = static_cast<std::int64_t>(epoch + 1);
  gradsync::torch::save_checkpoint(settings_.checkpoint, *net_, optimizer_, counters, comm_);
}

// Each rank takes every size-th test image; the sums over all ranks are exact.
Evaluation FashionTraining::evaluate() {
  const torch::NoGradGuard no_gradients;
  net_->eval();
  std::vector<double> sums = {0, 0, 0};  // right answers, loss, images
  std::vector<std::size_t> indices;
  const auto count = [&] {
    if (indices.empty()) return;
    const auto batch = test_.batch(indices);
    const auto logits = net_->forward(batch.images);
    sums[0] += logits.argmax(1).eq(batch.labels).sum().item<double>();
    sums[1] += torch::nll_loss(torch::log_softmax(logits, 1), batch.labels, {}, torch::Reduction::Sum).item<double>();
    sums[2] += static_cast<double>(indices.size());
    indices.clear();
  };
  const auto size = static_cast<std::size_t>(comm_.size());
  for (auto i = static_cast<std::size_t>(comm_.rank()); i < test_.size(); i += size) {
    indices.push_back(i);
    if (indices.size() == evaluation_batch) count();
  }
  count();
  comm_.all_reduce(gradsync::view(sums), gradsync::ReduceOp::sum);
  return {step_, sums[0] / sums[2], sums[1] / sums[2]};
}

void FashionTraining::finish_record(double seconds) {
  record_.program = "fashion_mnist";
  record_.reference = settings_.reference;
  record_.workers = static_cast<std::uint64_t>(comm_.size());
  record_.batch_per_worker = settings_.batch;
  record_.threads = static_cast<std::uint64_t>(settings_.threads);
  record_.epochs = settings_.epochs;
  record_.seed = settings_.seed;
  record_.learning_rate = settings_.learning_rate;
  record_.overlap = settings_.overlap_forward ? "backward and forward" : "backward";
  record_.seconds = seconds;
  const std::size_t skipped = std::min<std::size_t>(step_s_.size() / 2, settling_steps);
  const std::vector<double> measured(step_s_.begin() + static_cast<std::ptrdiff_t>(skipped), step_s_.end());
  const double measured_s = std::accumulate(measured.begin(), measured.end(), 0.0);
  if (measured_s > 0)
    record_.images_per_second = static_cast<double>(measured.size() * settings_.batch * record_.workers) / measured_s;
  record_.step_s_median = median(measured);

  if (replica_) {
    for (const auto& parameter : net_->parameters()) record_.gradient_bytes += parameter.nbytes();
    const auto& sync = replica_->sync();
    record_.buckets = sync.bucket_count();
    record_.replans = sync.replans();
    record_.message_latency_s = sync.cost().latency_s;
    record_.seconds_per_byte = sync.cost().seconds_per_byte;
    std::vector<double> sums = {record_.communication.under_way_s, record_.communication.exposed_s};
    comm_.all_reduce(gradsync::view(sums), gradsync::ReduceOp::avg);
    const double steps = static_cast<double>(std::max<std::uint64_t>(1, steps_measured_));
    record_.communication = {sums[0] / steps, sums[1] / steps};
    if (!settings_.trace.empty()) {
      const auto ranks = trace_.collect(comm_);
      if (comm_.rank() == 0) write_trace(ranks, settings_.trace);
    }
  }
  const auto replicas = compare_replicas(*net_, comm_);
  record_.fingerprints = replicas.fingerprints;
  progress_.line(replicas.describe());
}

}  // namespace training
