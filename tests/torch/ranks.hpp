// Ranks that are threads of the test, and models to train on them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradsync/communicator.hpp"
#include "gradsync/torch/distributed_data_parallel.hpp"

namespace gradsync_test {

using gradsync::Communicator;
using gradsync::Status;
using torch::Tensor;

// Runs `body` once a rank, each in a thread of its own with one thread for libtorch. An exception that leaves it fails
// the test.
void on_ranks(std::uint32_t size, const std::function<void(Communicator&)>& body);

// What `body` throws; a status that is ok if it throws nothing.
Status failure_of(const std::function<void()>& body);

std::vector<Tensor> parameters_of(const torch::nn::Module& module);     // copies
void copy_state(const torch::nn::Module& from, torch::nn::Module& to);  // parameters and buffers
double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);
bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b);
bool same_bits_on_all_ranks(Communicator& comm, const std::vector<Tensor>& mine);
std::vector<Tensor> gradients_of(const torch::nn::Module& module);  // copies; zeros where undefined

// Numbers that depend on the arguments only, about normally distributed.
Tensor noise(std::uint64_t seed, torch::IntArrayRef shape, torch::ScalarType type = torch::kFloat64);
// Rows rank, rank + size, … of a global batch.
Tensor share(const Tensor& global, const Communicator& comm);

struct MlpImpl : torch::nn::Module {
  MlpImpl(std::int64_t in, std::int64_t hidden, std::int64_t out);
  Tensor forward(const Tensor& x);
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Mlp);

}  // namespace gradsync_test
