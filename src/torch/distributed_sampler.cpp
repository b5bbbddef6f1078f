#include "gradsync/torch/distributed_sampler.hpp"

#include <numeric>
#include <utility>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync::torch {
namespace {

using Shares = DistributedSamplerOptions::Shares;

// Durstenfeld's shuffle (CACM algorithm 235, 1964).
void shuffle(std::vector<std::size_t>& order, Random random) {
  for (std::size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random.below(left)]);
}

// Positions of the epoch's order that are handed out to all ranks together.
std::size_t positions(std::size_t samples, std::size_t size, Shares shares) {
  switch (shares) {
    case Shares::uneven: return samples;
    case Shares::even_by_repeating: return (samples + size - 1) / size * size;
    case Shares::even_by_dropping: return samples / size * size;
  }
  return samples;
}

::torch::Tensor number(std::uint64_t value) {
  return ::torch::tensor(static_cast<std::int64_t>(value), ::torch::kInt64);
}

std::uint64_t number(::torch::serialize::InputArchive& archive, const char* key) {
  ::torch::Tensor value;
  archive.read(key, value);
  return static_cast<std::uint64_t>(value.item<std::int64_t>());
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t samples, int rank, int size, DistributedSamplerOptions options)
    : samples_(samples),
      rank_(rank),
      size_(size),
      options_(options),
      epoch_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (size < 1 || rank < 0 || rank >= size)
    throw Error(
        failure(ErrorCode::invalid_argument, "sampler of rank {} of {}: expected 0 <= rank < size", rank, size));
}

void DistributedSampler::set_epoch(std::uint64_t epoch) { epoch_->store(epoch); }
std::uint64_t DistributedSampler::epoch() const { return epoch_->load(); }

std::size_t DistributedSampler::share() const {
  const auto size = static_cast<std::size_t>(size_), rank = static_cast<std::size_t>(rank_);
  const std::size_t total = positions(samples_, size, options_.shares);
  return total / size + (rank < total % size ? 1 : 0);
}

void DistributedSampler::order() {
  ordered_epoch_ = epoch_->load();
  ordered_ = true;
  std::vector<std::size_t> all(samples_);
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (options_.shuffle) shuffle(all, Random(mix64(mix64(options_.seed) ^ ordered_epoch_)));
  mine_.resize(share());
  for (std::size_t k = 0; k < mine_.size(); ++k)
    mine_[k] = all[(static_cast<std::size_t>(rank_) + k * static_cast<std::size_t>(size_)) % samples_];
}

void DistributedSampler::reset(::torch::optional<std::size_t> new_size) {
  if (new_size.has_value() && *new_size != samples_) {
    samples_ = *new_size;
    ordered_ = false;
  }
  position_ = 0;
  if (!ordered_ || ordered_epoch_ != epoch_->load()) order();
}

::torch::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (!ordered_) order();
  const std::size_t count = std::min(std::max<std::size_t>(batch_size, 1), mine_.size() - position_);
  if (count == 0) return {};
  const auto begin = mine_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(::torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", number(ordered_ ? ordered_epoch_ : epoch_->load()));
  archive.write("position", number(position_));
  archive.write("samples", number(samples_));
}

void DistributedSampler::load(::torch::serialize::InputArchive& archive) {
  const std::uint64_t epoch = number(archive, "epoch"), position = number(archive, "position"),
                      samples = number(archive, "samples");
  if (samples != samples_ || position > share())
    throw Error(failure(ErrorCode::invalid_argument, "saved sampler is at {} of {} samples, expected at most {} of {}",
                        position, samples, share(), samples_));
  epoch_->store(epoch);
  order();
  position_ = position;
}

}  // namespace gradsync::torch
