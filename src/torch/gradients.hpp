// Where the gradients of a module's trained parameters live: views of a GradientSync's memory, which autograd's
// results are brought to and then added to in place.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradsync/gradient_sync.hpp"
#include "torch/model.hpp"

namespace gradsync::torch {

class Gradients {
 public:
  // `arrived(i)` is called in backward, when the gradient of parameters[i] has been accumulated; it must not throw.
  Gradients(std::vector<ModelParameter> parameters, std::function<void(std::size_t)> arrived);
  // Gradients that lie in the sync's memory move to memory of their own.
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Views of where the gradients are now; those of parameters that had a view follow.
  void lay_out(const GradientSync& sync);

  std::size_t size() const { return parameters_.size(); }
  const ModelParameter& parameter(std::size_t i) const { return parameters_[i]; }
  const ::torch::Tensor& view(std::size_t i) const { return views_[i]; }  // undefined for sparse ones
  bool defined(std::size_t i) const { return parameters_[i].tensor.grad().defined(); }

  // Dense: brings a defined gradient into the sync's memory and makes it the view.
  Status place(std::size_t i);
  void adopt(std::size_t i) { parameters_[i].tensor.mutable_grad() = views_[i]; }
  void reset(std::size_t i) { parameters_[i].tensor.mutable_grad().reset(); }
  // Sparse: of a defined gradient; and the other way.
  Status rows_of(std::size_t i, SparseRows& rows) const;
  void adopt(std::size_t i, const SparseRows& rows);

  // Which parameters these tensors depend on.
  std::vector<bool> reached_from(const std::vector<::torch::Tensor>& outputs) const;

 private:
  // A shared pointer, of a kind that depends on libtorch's version.
  using NodePointer = decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::torch::Tensor&>()));
  struct Hook {
    NodePointer accumulator;  // kept: a leaf makes a new one when nobody holds it
    std::uintptr_t key;
  };
  bool is_view(std::size_t i) const;
  std::vector<ModelParameter> parameters_;
  std::vector<::torch::Tensor> views_;
  std::vector<Hook> hooks_;
  std::unordered_map<const ::torch::autograd::Node*, std::size_t> by_node_;
  std::function<void(std::size_t)> arrived_;
};

}  // namespace gradsync::torch
