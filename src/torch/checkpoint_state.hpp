// What a checkpoint holds, as a value: counters, tensors by name, and the optimiser's state as libtorch writes it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace gradsync::torch {

struct SavedTensor {
  std::string name;  // "parameter conv1.weight", "buffer bn.running_mean"
  std::string type;  // libtorch's name of the element type
  std::vector<std::int64_t> shape;
  std::string_view bytes;  // borrowed
};

struct SavedState {
  std::map<std::string, std::int64_t> counters;
  std::vector<SavedTensor> tensors;
  std::string optimizer_type;
  std::vector<std::uint64_t> optimizer_groups;  // parameters of each
  std::string optimizer;
};

// The module's parameters and buffers, contiguous; shared memory where they are so already.
struct NamedTensor {
  std::string name;
  ::torch::Tensor tensor;
};
std::vector<NamedTensor> state_of(const ::torch::nn::Module& module);

// `tensors` must outlive it.
SavedState describe(const std::vector<NamedTensor>& tensors, const ::torch::optim::Optimizer& optimizer,
                    const std::map<std::string, std::int64_t>& counters);

std::string encode(const SavedState& state);
// Borrows `payload`. protocol if it cannot be read.
Result<SavedState> decode(std::string_view payload, const std::string& path);

// mismatch, naming the first difference, unless `state` is one of this model and this optimiser.
Status check_fits(const SavedState& state, const std::string& path, const std::vector<NamedTensor>& tensors,
                  const ::torch::optim::Optimizer& optimizer);

std::string bytes_of(const ::torch::optim::Optimizer& optimizer);
void restore(::torch::optim::Optimizer& optimizer, const std::string& bytes);  // throws what libtorch throws

}  // namespace gradsync::torch
