// A contiguous CPU tensor as gradsync sees it.
#pragma once

#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "gradsync/communicator.hpp"

namespace training {

// Borrowed from the tensor. Throws std::invalid_argument unless it is contiguous, on the CPU, and f32 or f64.
inline gradsync::View view_of(const torch::Tensor& tensor) {
  const bool f32 = tensor.scalar_type() == torch::kFloat32, f64 = tensor.scalar_type() == torch::kFloat64;
  if (!tensor.is_contiguous() || !tensor.device().is_cpu() || !(f32 || f64))
    throw std::invalid_argument("tensor of " + std::string(torch::toString(tensor.scalar_type())) +
                                ", expected a contiguous one of f32 or f64 on the CPU");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
          f32 ? gradsync::DType::f32 : gradsync::DType::f64};
}

}  // namespace training
