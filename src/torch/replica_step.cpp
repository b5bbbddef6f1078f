// Optimiser steps under the next forward pass: each parameter before the first operation that reads it.
#include "base/status.hpp"
#include "torch/replica_impl.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

const void* storage_of(const Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

}  // namespace

void Replica::Impl::begin_forwarding() {
  forwarding = true;
  index_storages();
}

// Storages, because a view or an alias of a parameter reads it too.
void Replica::Impl::index_storages() {
  by_storage.clear();
  by_identity.clear();
  for (std::size_t i = 0; i < gradients->size(); ++i) {
    const Tensor& parameter = gradients->parameter(i).tensor;
    by_identity[parameter.unsafeGetTensorImpl()] = i;
    by_storage[storage_of(parameter)].push_back(i);
    if (gradients->view(i).defined()) by_storage[storage_of(gradients->view(i))].push_back(i);
  }
}

void Replica::Impl::step(::torch::optim::Optimizer& optimizer) {
  rethrow();
  if (forwarding && deferred.has(optimizer)) synchronize();
  if (!forwarding) {
    optimizer.step();
    return;
  }
  index_storages();
  deferred.add(optimizer);
  outstanding.assign(gradients->size(), true);
  outstanding_total = gradients->size();
  watch.start();
  deferred.take([&](const Tensor& parameter) { return !by_identity.contains(parameter.unsafeGetTensorImpl()); });
}

void Replica::Impl::on_read(const Tensor& tensor) noexcept {
  if (!forwarding || error) return;
  const auto found = by_storage.find(storage_of(tensor));
  if (found == by_storage.end()) return;
  try {
    for (const std::size_t i : found->second) on_read_of(i);
  } catch (...) { error = std::current_exception(); }
}

void Replica::Impl::on_read_of(std::size_t i) {
  if (outstanding[i]) apply_with(i);
  else if (deferred.empty()) sync->wait(i);  // before step(): somebody reads the gradient
}

// The parameter, and whatever else has come by now.
void Replica::Impl::apply_with(std::size_t i) {
  sync->wait(i);
  std::vector<bool> wanted(outstanding.size(), false);
  for (std::size_t k = 0; k < outstanding.size(); ++k) wanted[k] = outstanding[k] && (k == i || sync->complete(k));
  apply(wanted);
}

// The optimiser sees the gradients of these parameters whatever the user has made of .grad() since step(), and leaves
// it as it was.
void Replica::Impl::apply(const std::vector<bool>& wanted) {
  std::vector<std::pair<std::size_t, Tensor>> before;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    outstanding[i] = false;
    --outstanding_total;
    before.emplace_back(i, gradients->parameter(i).tensor.grad());
    adopt_result(i);
  }
  deferred.take([&](const Tensor& parameter) {
    const auto found = by_identity.find(parameter.unsafeGetTensorImpl());
    return found != by_identity.end() && wanted[found->second];
  });
  for (auto& [i, gradient] : before) gradients->parameter(i).tensor.mutable_grad() = gradient;
}

void Replica::Impl::synchronize(bool adopt) {
  if (forwarding && !error) {
    try {
      if (outstanding_total > 0) {
        for (std::size_t i = 0; i < outstanding.size(); ++i) sync->wait(i);
        apply(std::vector<bool>(outstanding));
      } else if (deferred.empty()) {
        sync->wait_all();
        if (adopt) adopt_results();
      }
    } catch (...) { error = std::current_exception(); }
  }
  end_forwarding();
  rethrow();
}

void Replica::Impl::end_forwarding() {
  forwarding = false;
  deferred.clear();
  outstanding.assign(outstanding.size(), false);
  outstanding_total = 0;
}

void Replica::Impl::rethrow() {
  if (!error) return;
  end_forwarding();
  std::rethrow_exception(std::exchange(error, nullptr));
}

}  // namespace gradsync::torch
