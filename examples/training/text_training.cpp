#include "text_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>

#include "support/fingerprint.hpp"
#include "support/settings.hpp"
#include "support/step_trace.hpp"

namespace training {
namespace {

constexpr double validation_share = 0.05;  // the end of the text
constexpr std::size_t validation_batch = 64;
constexpr double temperature = 0.8;  // of generated text: below 1, likely characters become likelier
constexpr std::size_t bucket_bytes_deterministic = 1 << 18;
constexpr const char* prompt = "The ";

torch::Tensor part_of(const torch::Tensor& tokens, bool validation) {
  const auto cut = static_cast<std::int64_t>(static_cast<double>(tokens.size(0)) * (1 - validation_share));
  return validation ? tokens.narrow(0, cut, tokens.size(0) - cut) : tokens.narrow(0, 0, cut);
}

TransformerShape shape_for(const Tokeniser& tokeniser) {
  TransformerShape shape;
  shape.vocabulary = tokeniser.size();
  return shape;
}

CharTransformer seeded_net(const TextSettings& settings, const TransformerShape& shape) {
  torch::manual_seed(settings.seed);
  return CharTransformer(shape);
}

gradsync::torch::DistributedDataParallelOptions replica_options(const TextSettings& settings) {
  gradsync::torch::DistributedDataParallelOptions options;
  options.sync.weighted = true;  // every sample counts the same, whichever rank has it
  options.sync.deterministic = settings.deterministic;
  // The order in which the norm adds up depends on the plan, and that, unless fixed, on times measured.
  if (settings.deterministic) options.sync.bucket_bytes = bucket_bytes_deterministic;
  options.broadcast_buffers = false;  // the mask of the attention never changes
  return options;
}

gradsync::torch::DistributedSamplerOptions sampler_options(const TextSettings& settings) {
  gradsync::torch::DistributedSamplerOptions options;
  options.seed = settings.seed;
  return options;
}

// Collective.
TextSettings checked(TextSettings settings, gradsync::Communicator& comm) {
  if (settings.batch == 0) throw std::invalid_argument("--batch is 0, expected at least 1");
  require_equal_settings({{"--batch", static_cast<double>(settings.batch)},
                          {"--epochs", static_cast<double>(settings.epochs)},
                          {"--steps", static_cast<double>(settings.steps)},
                          {"--lr", settings.learning_rate},
                          {"--clip", settings.gradient_norm_max},
                          {"--seed", static_cast<double>(settings.seed)}},
                         comm);
  return settings;
}

// Natural logarithm's units to bits.
double bits(double nats) { return nats / std::numbers::ln2; }

torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

}  // namespace

TextTraining::TextTraining(TextSettings settings, gradsync::Communicator& comm)
    : settings_(checked(std::move(settings), comm)),
      comm_(comm),
      text_(load_text(settings_.data, text_files)),
      tokeniser_(text_),
      tokens_(tokeniser_.encode(text_)),
      shape_(shape_for(tokeniser_)),
      train_(part_of(tokens_, false), shape_.context),
      validation_(part_of(tokens_, true), shape_.context),
      net_(seeded_net(settings_, shape_)),
      replica_(net_, comm, replica_options(settings_)),
      optimizer_(net_->parameters(), torch::optim::AdamWOptions(settings_.learning_rate)),
      sampler_(train_.size(), comm.rank(), comm.size(), sampler_options(settings_)),
      progress_(stdout, is_terminal(stdout), comm.rank() != 0) {
  torch::set_num_threads(settings_.threads);
}

bool TextTraining::run() {
  began_s_ = now_s();
  progress_.line(fmt::format("{} characters of text, {} different ones, {} windows to train on", text_.size(),
                             tokeniser_.size(), train_.size()));
  for (std::uint64_t epoch = 0; epoch < settings_.epochs; ++epoch) {
    train_epoch(epoch);
    progress_.line(fmt::format("epoch {}: validation loss {:.3f} bits a character", epoch + 1, validation_loss()));
  }
  if (settings_.sample_characters > 0 && comm_.rank() == 0) progress_.line("a sample:\n" + generated_text());
  const auto replicas = compare_replicas(*net_, comm_);
  progress_.line(replicas.describe());
  return replicas.identical();
}

void TextTraining::train_epoch(std::uint64_t epoch) {
  net_->train();
  sampler_.set_epoch(epoch);
  sampler_.reset();
  // Rank 0's share is the largest one.
  const std::uint64_t batches =
      (train_.size() / static_cast<std::uint64_t>(comm_.size()) + settings_.batch) / settings_.batch;
  const std::uint64_t end = settings_.steps ? std::min(settings_.steps, batches) : batches;
  for (std::uint64_t step = 0; step < end; ++step, ++step_) {
    const auto indices = sampler_.next(settings_.batch);
    if (!indices) break;
    train_step(train_.batch(*indices));
    progress_.show({fmt::format("epoch {}/{}", epoch + 1, settings_.epochs),
                    fmt::format("{:.3f} bits a character", loss_), epoch * end + step + 1, settings_.epochs * end,
                    now_s() - began_s_});
  }
  while (replica_.accompany()) update();  // others may have one more batch
  replica_.synchronize();
}

void TextTraining::train_step(const TextBatch& batch) {
  replica_.set_samples(static_cast<std::uint64_t>(batch.tokens.size(0)));
  replica_.zero_grad();
  const auto loss = mean_loss(replica_(batch.tokens), batch.targets);
  loss.backward();
  update();
  loss_ = bits(loss.item<double>());
}

void TextTraining::update() {
  replica_.clip_grad_norm(settings_.gradient_norm_max);
  replica_.step(optimizer_);
}

double TextTraining::validation_loss() {
  const torch::NoGradGuard no_gradients;
  net_->eval();
  std::vector<double> sums = {0, 0};  // loss times windows, windows
  std::vector<std::size_t> indices;
  const auto count = [&] {
    if (indices.empty()) return;
    const auto batch = validation_.batch(indices);
    const auto windows = static_cast<double>(indices.size());
    sums[0] += windows * mean_loss(net_->forward(batch.tokens), batch.targets).item<double>();
    sums[1] += windows;
    indices.clear();
  };
  const auto size = static_cast<std::size_t>(comm_.size());
  for (auto i = static_cast<std::size_t>(comm_.rank()); i < validation_.size(); i += size) {
    indices.push_back(i);
    if (indices.size() == validation_batch) count();
  }
  count();
  comm_.all_reduce(gradsync::view(sums), gradsync::ReduceOp::sum);
  return bits(sums[0] / sums[1]);
}

std::string TextTraining::generated_text() {
  const torch::NoGradGuard no_gradients;
  net_->eval();
  torch::manual_seed(settings_.seed);
  auto tokens = tokeniser_.encode(prompt);
  for (std::int64_t i = 0; i < settings_.sample_characters; ++i) {
    const auto seen = tokens.narrow(0, std::max<std::int64_t>(0, tokens.size(0) - shape_.context),
                                    std::min(tokens.size(0), shape_.context));
    const auto logits = net_->forward(seen.unsqueeze(0))[0][-1];
    tokens = torch::cat({tokens, torch::softmax(logits / temperature, 0).multinomial(1)});
  }
  return tokeniser_.decode({tokens.data_ptr<std::int64_t>(), static_cast<std::size_t>(tokens.size(0))});
}

}  // namespace training
