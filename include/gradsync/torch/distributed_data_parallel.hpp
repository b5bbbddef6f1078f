// Data-parallel training of a libtorch module in C++: every replica ends each step with the same parameters, to the
// bit.
//
//   auto comm = gradsync::Communicator::create();
//   Net net;                                                              // any torch::nn module holder or shared_ptr
//   gradsync::torch::DistributedDataParallel model(net, comm);            // parameters and buffers are now rank 0's
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (auto& batch : loader) {
//     model.zero_grad();                                                  // or optimizer.zero_grad()
//     auto loss = torch::nll_loss(model(batch.data), batch.target);
//     loss.backward();                                                    // gradients leave while backward runs
//     model.step(optimizer);                                              // or optimizer.step(), see step()
//   }
//
// All ranks make the same calls. One thread uses a Replica and its module. Failures of the exchange leave
// loss.backward() (with Overlap::backward_forward the next call of this class) as gradsync::Error. `docs/libtorch.md`
// has the rest: accumulation, uneven data, what may not be done.
#pragma once

#include <torch/torch.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradsync/communicator.hpp"
#include "gradsync/gradient_sync.hpp"

namespace gradsync::torch {

struct DistributedDataParallelOptions {
  GradientSyncOptions sync;
  // Before each forward in training mode (outside of no_sync), rank 0's buffers (batch norm's running statistics, say)
  // replace the others'.
  bool broadcast_buffers = true;
  // Names of parameters whose gradient is sparse, besides the weights of Embedding and EmbeddingBag with sparse(true).
  std::vector<std::string> sparse_parameters = {};
};

// Everything of DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  // Collective. mismatch if the ranks' models differ, naming two ranks and what differs; unsupported for tensors that
  // are not on the CPU, not dense, or trained in a type that is no float. Parameters without requires_grad are only
  // broadcast; one that is registered twice (tied weights) is one parameter.
  Replica(std::shared_ptr<::torch::nn::Module> module, Communicator& comm, DistributedDataParallelOptions options);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  // What operator() does around the module's forward. Throws invalid_argument naming the parameter if one was added,
  // removed, replaced, unfrozen or changed in type or shape since, or frozen without find_unused; see rewrap().
  void before_forward();
  // `outputs`: tensors that backward will start from; with find_unused, parameters that they do not depend on are
  // known to be unused before backward begins. May be empty.
  void after_forward(const std::vector<::torch::Tensor>& outputs);

  // Leaves all gradients undefined, which is cheaper than the optimiser's zeroing in place: backward then writes a
  // gradient once instead of adding it to zeros, and with Overlap::backward_forward no gradient is waited for.
  void zero_grad();

  // The optimiser's step, for both overlaps. Overlap::backward: optimizer.step(). Overlap::backward_forward: parameters
  // are updated bucket by bucket, each before the next operation of this thread that reads one of them, with the
  // options that the optimiser has now; it must live until then. Works with optimisers that treat each parameter by
  // itself (SGD, Adam, AdamW, Adagrad, RMSprop) and LayerwiseAdaptive around one of them.
  void step(::torch::optim::Optimizer& optimizer);
  // Everything that step() put off. Called by itself where the module's state is read through this class (evaluation,
  // checkpoints, the end of the next forward); call it before other threads read parameters or they are read through
  // pointers.
  void synchronize();

  // Gradients stay local while it lives (accumulation): { auto guard = model.no_sync(); … forward, backward … }
  class NoSync;
  NoSync no_sync();

  // Samples of this rank's batch (of all batches since the last exchange), where options.sync.weighted. Once a step,
  // before its backward.
  void set_samples(std::uint64_t samples);
  // A step of a rank without samples: `while (model.accompany()) model.step(optimizer);`. True: gradients are
  // complete. False: every rank has run out.
  bool accompany();
  // Scales all gradients so that their global 2-norm is at most norm_max; returns the norm before. Between backward
  // and step.
  double clip_grad_norm(double norm_max);

  // Collective. Takes the module's parameters as they are now: after some were added, replaced, frozen or unfrozen, on
  // every rank alike. Parameters and buffers are rank 0's then.
  void rewrap();

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

// The tensors of what a forward returns: a tensor, or optionals, pairs, tuples, arrays and vectors of what has
// tensors. Of any other type none, which costs only the early knowledge of unused parameters.
namespace detail {
inline void add_tensors(std::vector<::torch::Tensor>& all, const ::torch::Tensor& tensor) { all.push_back(tensor); }
template <class T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::optional<T>& item);
template <class A, class B>
void add_tensors(std::vector<::torch::Tensor>& all, const std::pair<A, B>& items);
template <class... T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::tuple<T...>& items);
template <class T, std::size_t N>
void add_tensors(std::vector<::torch::Tensor>& all, const std::array<T, N>& items);
template <class T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::vector<T>& items);
template <class T>
requires(!std::is_convertible_v<const T&, ::torch::Tensor>) void add_tensors(std::vector<::torch::Tensor>&, const T&) {}

template <class T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::optional<T>& item) {
  if (item) add_tensors(all, *item);
}
template <class A, class B>
void add_tensors(std::vector<::torch::Tensor>& all, const std::pair<A, B>& items) {
  add_tensors(all, items.first);
  add_tensors(all, items.second);
}
template <class... T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::tuple<T...>& items) {
  std::apply([&](const auto&... item) { (add_tensors(all, item), ...); }, items);
}
template <class T, std::size_t N>
void add_tensors(std::vector<::torch::Tensor>& all, const std::array<T, N>& items) {
  for (const T& item : items) add_tensors(all, item);
}
template <class T>
void add_tensors(std::vector<::torch::Tensor>& all, const std::vector<T>& items) {
  for (const T& item : items) add_tensors(all, item);
}
}  // namespace detail

// Around a module of any type M with a `forward`; `M` is the implementation class (NetImpl).
template <class M>
class DistributedDataParallel : public Replica {
 public:
  DistributedDataParallel(std::shared_ptr<M> module, Communicator& comm, DistributedDataParallelOptions options = {})
      : Replica(module, comm, std::move(options)),
        module_(std::move(module)) {}
  DistributedDataParallel(const ::torch::nn::ModuleHolder<M>& holder, Communicator& comm,
                          DistributedDataParallelOptions options = {})
      : DistributedDataParallel(holder.ptr(), comm, std::move(options)) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    before_forward();
    auto output = module_->forward(std::forward<Arguments>(arguments)...);
    std::vector<::torch::Tensor> tensors;
    detail::add_tensors(tensors, output);
    after_forward(tensors);
    return output;
  }
  M* operator->() const { return module_.get(); }
  const std::shared_ptr<M>& module() const { return module_; }

 private:
  std::shared_ptr<M> module_;
};

}  // namespace gradsync::torch
