// The parameters and buffers of a module as a replica keeps them in step.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "gradsync/gradient_sync.hpp"

namespace gradsync::torch {

struct ModelParameter {
  std::string name;
  ::torch::Tensor tensor;
  bool trained = false, sparse = false;
  std::vector<std::int64_t> shape;  // as it was
  ::torch::ScalarType type = ::torch::kFloat32;
};

// In the order of registration, each tensor once.
std::vector<ModelParameter> model_parameters(const ::torch::nn::Module& module,
                                             const std::vector<std::string>& sparse_names);
// What gradsync cannot train, by name.
Status check_trainable(const std::vector<ModelParameter>& parameters);

// How the module differs from what it was: invalid_argument naming the first such parameter. `may_freeze`: a parameter
// without requires_grad is only one that is not used.
Status check_unchanged(const ::torch::nn::Module& module, const std::vector<ModelParameter>& was, bool may_freeze);

std::vector<::torch::Tensor> model_buffers(const ::torch::nn::Module& module);
// As check_same_model compares them.
std::vector<Parameter> described_buffers(const ::torch::nn::Module& module);

// Collective. Rank 0's values to all, without a trace in autograd. `coalesce`: one message for all, through a copy.
void broadcast_tensors(Communicator& comm, const std::vector<::torch::Tensor>& tensors, bool coalesce);

}  // namespace gradsync::torch
