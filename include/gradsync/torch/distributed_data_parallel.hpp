// Data-parallel training of a libtorch module in C++: every replica ends each step with the same parameters, to the bit.
//
//   auto comm = gradsync::Communicator::create();
//   Net net;                                                              // any torch::nn module holder or shared_ptr
//   gradsync::torch::DistributedDataParallel model(net, comm);            // parameters and buffers are now rank 0's
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     auto loss = torch::nll_loss(model(batch.data), batch.target);
//     loss.backward();                                                    // gradients leave while backward runs
//     model.step(optimizer);                                              // or optimizer.step(), see step()
//   }
#pragma once

#include <torch/torch.h>

#include <memory>
#include <utility>

#include "gradsync/communicator.hpp"
#include "gradsync/gradient_sync.hpp"

namespace gradsync::torch {

struct DistributedDataParallelOptions {
  GradientSyncOptions sync;
  // Before each forward in training mode (outside of no_sync), rank 0's buffers (batch norm's running statistics, say)
  // replace the others'.
  bool broadcast_buffers = true;
};

// Everything of DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  // Collective. mismatch if the ranks' models differ, naming two ranks and what differs.
  Replica(std::shared_ptr<::torch::nn::Module> module, Communicator& comm, DistributedDataParallelOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void before_forward();                                    // what operator() does around the module's forward
  void after_forward(std::vector<::torch::Tensor> outputs);  // tensors that backward will start from

  // The optimiser's step, for both overlaps. Overlap::backward: optimizer.step(). Overlap::backward_forward: parameters
  // are updated bucket by bucket, each before the next operation that reads one of them; optimizer.step() must not be
  // called then. Works with optimisers that treat each parameter by itself (SGD, Adam, AdamW, Adagrad, RMSprop).
  void step(::torch::optim::Optimizer& optimizer);
  // Everything that step() put off. Called by itself where the module's state is read through this class (no_sync,
  // evaluation, checkpoints, the next backward).
  void synchronize();

  // Gradients stay local while it lives (accumulation): { auto guard = model.no_sync(); … backward … }
  class NoSync;
  NoSync no_sync();

  void set_samples(std::uint64_t samples);  // of this rank's batch, where options.sync.weighted
  // A step of a rank without samples: `while (model.accompany()) model.step(optimizer);`
  bool accompany();
  double clip_grad_norm(double norm_max);  // between backward and step

  GradientSync& sync();
  Communicator& communicator();
  const std::shared_ptr<::torch::nn::Module>& module_ptr() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

class Replica::NoSync {
 public:
  explicit NoSync(Replica& replica);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  Replica* replica_;
  bool before_;
};

// Around a module of any type M with a `forward`; `M` is the implementation class (NetImpl).
template <class M>
class DistributedDataParallel : public Replica {
 public:
  DistributedDataParallel(std::shared_ptr<M> module, Communicator& comm, DistributedDataParallelOptions options = {})
      : Replica(module, comm, std::move(options)), module_(std::move(module)) {}
  DistributedDataParallel(const ::torch::nn::ModuleHolder<M>& holder, Communicator& comm,
                          DistributedDataParallelOptions options = {})
      : DistributedDataParallel(holder.ptr(), comm, std::move(options)) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    before_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    after_forward(tensors_in(output));
    return output;
  }
  M* operator->() const { return module_.get(); }
  const std::shared_ptr<M>& module() const { return module_; }

 private:
  static std::vector<::torch::Tensor> tensors_in(const ::torch::Tensor& t) { return {t}; }
  // tuples, vectors and structs of tensors: overloads to follow
  std::shared_ptr<M> module_;
};

}  // namespace gradsync::torch
