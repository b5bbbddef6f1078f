#pragma once

#include <torch/torch.h>

#include <limits>

namespace training {

// The largest absolute difference of two tensors' elements; infinity where it is not a number or the shapes differ.
inline double largest_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.sizes() != b.sizes()) return std::numeric_limits<double>::infinity();
  const double largest = (a - b).abs().max().item<double>();
  return largest == largest ? largest : std::numeric_limits<double>::infinity();
}

}  // namespace training
