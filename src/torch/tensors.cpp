#include "torch/tensors.hpp"

#include <cstring>

#include "base/status.hpp"

namespace gradsync::torch {

std::optional<DType> dtype_of(::torch::ScalarType type) {
  switch (type) {
    case ::torch::kFloat16: return DType::f16;
    case ::torch::kBFloat16: return DType::bf16;
    case ::torch::kFloat32: return DType::f32;
    case ::torch::kFloat64: return DType::f64;
    case ::torch::kInt8: return DType::i8;
    case ::torch::kUInt8: return DType::u8;
    case ::torch::kInt32: return DType::i32;
    case ::torch::kInt64: return DType::i64;
    case ::torch::kBool: return DType::boolean;
    default: return std::nullopt;
  }
}

std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()) * tensor.element_size(); }

View view_of(const Tensor& contiguous) {
  GRADSYNC_CHECK(contiguous.is_contiguous());
  const std::optional<DType> dtype = dtype_of(contiguous.scalar_type());
  if (!dtype) return {contiguous.data_ptr(), bytes_of(contiguous), DType::u8};
  return {contiguous.data_ptr(), static_cast<std::size_t>(contiguous.numel()), *dtype};
}

Parameter parameter_of(const std::string& name, const Tensor& tensor) {
  Parameter parameter{name, tensor.sizes().vec(), DType::u8, false};
  if (const std::optional<DType> dtype = dtype_of(tensor.scalar_type())) {
    parameter.dtype = *dtype;
    return parameter;
  }
  parameter.name += fmt::format(" ({})", ::c10::toString(tensor.scalar_type()));
  parameter.shape.push_back(static_cast<std::int64_t>(tensor.element_size()));
  return parameter;
}

void overwrite(const Tensor& destination, const Tensor& source) {
  if (destination.is_contiguous() && source.is_contiguous() && destination.scalar_type() == source.scalar_type()) {
    if (source.numel() > 0) std::memcpy(destination.data_ptr(), source.data_ptr(), bytes_of(source));
    return;
  }
  ::torch::NoGradGuard none;
  destination.variable_data().copy_(source);  // shares memory, not the version counter
}

void require_dense_on_cpu(const std::string& name, const Tensor& tensor) {
  if (!tensor.device().is_cpu())
    throw Error(failure(ErrorCode::unsupported, "{} is on {}, expected cpu", name, tensor.device().str()));
  if (tensor.layout() != ::torch::kStrided) throw Error(failure(ErrorCode::unsupported, "{} is not dense", name));
}

}  // namespace gradsync::torch
