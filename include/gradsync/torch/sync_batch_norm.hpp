// Batch norm over the samples of all ranks: the same as one process with the whole batch, for local batches of any
// size.
//
//   gradsync::torch::SyncBatchNorm norm(torch::nn::BatchNormOptions(64), comm);
//   y = norm(x);   // x: (N, 64, …), N may differ between ranks and be 0
//
// Statistics: each rank's count, mean and sum of squared deviations (two passes, f64) travel in one all-gather and are
// combined in rank order (Chan, Golub, LeVeque, 1979), so that every rank has the same bits. Backward is one
// all-reduce of two f64 a channel. Gradients of weight and bias are this rank's sums: DistributedDataParallel averages
// them with the others. Gradients are those of the sum of all ranks' losses. So batches of different sizes are exact
// if each rank's loss is a sum over samples divided by the same number on all ranks (the global batch divided by the
// world, for its mean), and not if it is a local mean that GradientSyncOptions::weighted weights afterwards.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "gradsync/communicator.hpp"

namespace gradsync::torch {

// Input (N, C, *) with N >= 0 on each rank, f16, bf16, f32 or f64, with more than one value a channel over all ranks
// (else invalid_argument on every rank). State (weight, bias, running_mean, running_var, num_batches_tracked) has the
// names of BatchNorm, so that checkpoints are exchangeable; running_var is unbiased over the global batch. Forward and
// backward are collective in training mode, in the same order on all ranks. In evaluation mode it is plain batch norm:
// of running statistics, or, without them, of the local batch. Backward through backward (create_graph) throws
// unsupported.
class SyncBatchNormImpl : public ::torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // Collective: splits a communicator of its own off `comm`, so that nothing else interleaves with it.
  SyncBatchNormImpl(::torch::nn::BatchNormOptions options, Communicator& comm);
  // Layers of one network can share a communicator, which serves nothing else.
  SyncBatchNormImpl(::torch::nn::BatchNormOptions options, std::shared_ptr<Communicator> shared);
  void reset() override;
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;
  ::torch::Tensor forward(const ::torch::Tensor& input);

  ::torch::nn::BatchNormOptions options;
  ::torch::Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  friend struct SyncBatchNormConversion;
  ::torch::Tensor synchronised(const ::torch::Tensor& input);
  std::shared_ptr<Communicator> comm_;
};
// As TORCH_MODULE, which does not work in a namespace whose name ends in torch.
class SyncBatchNorm : public ::torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
  using Impl = SyncBatchNormImpl;
};

// Collective. Replaces every BatchNorm1d, 2d and 3d that is an element of a torch::nn::Sequential in `module`, at any
// depth; weights stay the same tensors, so that optimisers made before know them. Returns how many. A C++ module with
// a BatchNorm member calls that member, whatever is registered: such a one cannot be replaced from outside, and
// unsupported is thrown, naming it, before anything is changed.
std::size_t convert_sync_batch_norm(::torch::nn::Module& module, Communicator& comm);

}  // namespace gradsync::torch
