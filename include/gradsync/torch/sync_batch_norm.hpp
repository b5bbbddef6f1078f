// Batch norm over the samples of all ranks: the same as one process with the whole batch, for local batches of any size.
#pragma once

#include <torch/torch.h>

#include "gradsync/communicator.hpp"

namespace gradsync::torch {

// Input (N, C, *) with N >= 0 on each rank, of which at least one rank has N*rest > 1. State (weight, bias, running_mean,
// running_var, num_batches_tracked) has the names of BatchNorm, so that checkpoints are exchangeable. Collective in training
// mode, forward and backward. In evaluation mode it is plain batch norm.
class SyncBatchNormImpl : public ::torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  SyncBatchNormImpl(::torch::nn::BatchNormOptions options, Communicator& comm);
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  ::torch::Tensor forward(const ::torch::Tensor& input);

  ::torch::nn::BatchNormOptions options;
  ::torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  Communicator* comm_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace gradsync::torch
