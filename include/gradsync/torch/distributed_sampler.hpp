// Which samples of a dataset each rank sees in an epoch: no sample lost, none repeated.
//
//   gradsync::torch::DistributedSampler sampler(samples, comm.rank(), comm.size(), {.seed = 7});
//   auto loader = torch::data::make_data_loader(dataset, sampler, batch_size);   // keeps a copy
//   for (epoch …) {
//     sampler.set_epoch(epoch);                                                  // reaches the copy
//     for (auto& batch : *loader) …
//   }
#pragma once

#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace gradsync::torch {

struct DistributedSamplerOptions {
  std::uint64_t seed = 0;  // the same on every rank
  bool shuffle = true;
  // Uneven shares (the default) differ by one sample at most, lose none and repeat none. Even ones let the last shares
  // repeat samples from the start of the order, as PyTorch's sampler does, or drop the samples after the last whole
  // round.
  enum class Shares : std::uint8_t { uneven, even_by_repeating, even_by_dropping } shares = Shares::uneven;
};

// A torch::data sampler: rank r of size gets positions r, r + size, r + 2*size, … of the epoch's order. So the k-th
// batches of all ranks together are the k-th global batch of one process with the batch size times `size`. Throws
// invalid_argument unless 0 <= rank < size.
class DistributedSampler : public ::torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t samples, int rank, int size, DistributedSamplerOptions options = {});
  // Another order, from the next reset() on, which every data loader does when an epoch begins. Copies of a sampler
  // share the epoch.
  void set_epoch(std::uint64_t epoch);
  std::uint64_t epoch() const;
  std::size_t share() const;  // samples of this rank in an epoch
  void reset(::torch::optional<std::size_t> new_size = {}) override;
  // At most `batch_size` samples (at least one); nothing at the end of the epoch. A copy that was never reset begins
  // with the epoch that is set.
  ::torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  // Epoch, position and number of samples; load throws invalid_argument if the position is beyond this rank's share.
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  void order();
  std::size_t samples_, position_ = 0;
  int rank_, size_;
  DistributedSamplerOptions options_;
  std::shared_ptr<std::atomic<std::uint64_t>> epoch_;
  std::uint64_t ordered_epoch_ = 0;
  bool ordered_ = false;  // mine_ is of ordered_epoch_
  std::vector<std::size_t> mine_;
};

}  // namespace gradsync::torch
