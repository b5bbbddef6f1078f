// Optimiser steps that were put off, taken for some parameters at a time.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace gradsync::torch {

class DeferredSteps {
 public:
  // With the options that the optimiser has now. It must live until the last parameter is stepped.
  void add(::torch::optim::Optimizer& optimizer);
  bool has(const ::torch::optim::Optimizer& optimizer) const;
  bool empty() const { return steps_.empty(); }
  // Steps those parameters for which `wanted` is true, in every optimiser that has one. Groups and options of the
  // optimisers are as before afterwards.
  void take(const std::function<bool(const ::torch::Tensor&)>& wanted);
  void clear() { steps_.clear(); }

 private:
  struct Step {
    ::torch::optim::Optimizer* optimizer;
    ::torch::optim::Optimizer* holder;  // of the groups: itself, or the one it wraps
    std::vector<::torch::optim::OptimizerParamGroup> groups;
  };
  std::vector<Step> steps_;
};

}  // namespace gradsync::torch
