// Which samples of a dataset each rank sees in an epoch: no sample lost, none repeated.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace gradsync::torch {

struct DistributedSamplerOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  // Uneven shares (the default) differ by one sample at most, lose none and repeat none. `even` lets the last shares repeat samples from
  // the start of the order, as PyTorch's sampler does.
  enum class Shares { uneven, even_by_repeating, even_by_dropping } shares = Shares::uneven;
};

// A torch::data sampler: rank r of size gets positions r, r + size, r + 2*size, … of the epoch's order. So the k-th batches of all
// ranks together are the k-th global batch of one process with the batch size times `size`.
class DistributedSampler : public ::torch::data::samplers::Sampler<> {
 public:
  DistributedSampler(std::size_t samples, int rank, int size, DistributedSamplerOptions options = {});
  void set_epoch(std::uint64_t epoch);  // another order; resets
  std::size_t share() const;            // samples of this rank in an epoch
  void reset(::torch::optional<std::size_t> new_size = ::torch::nullopt) override;
  ::torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  void order();
  std::size_t samples_, position_ = 0;
  int rank_, size_;
  DistributedSamplerOptions options_;
  std::uint64_t epoch_ = 0;
  std::vector<std::size_t> mine_;
};

}  // namespace gradsync::torch
