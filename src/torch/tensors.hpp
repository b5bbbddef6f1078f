// Tensors as gradsync sees them: element types, views, descriptions.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>

#include "gradsync/communicator.hpp"
#include "gradsync/gradient_sync.hpp"

namespace gradsync::torch {

using ::torch::Tensor;

// Nothing for types that gradsync does not calculate with (16-bit integers, complex, quantised).
std::optional<DType> dtype_of(::torch::ScalarType type);

std::size_t bytes_of(const Tensor& tensor);  // of its elements

// The elements of a contiguous tensor on the CPU; as bytes where gradsync has no such type. Borrowed.
View view_of(const Tensor& contiguous);

// As check_same_model compares it. Of a type that gradsync does not know, the name tells the type and the elements are
// bytes.
Parameter parameter_of(const std::string& name, const Tensor& tensor);

// Copies without a trace in autograd: no version is counted, nothing is recorded. Equal shapes.
void overwrite(const Tensor& destination, const Tensor& source);

// Throws unsupported, naming it, unless the tensor is dense and on the CPU.
void require_dense_on_cpu(const std::string& name, const Tensor& tensor);

}  // namespace gradsync::torch
