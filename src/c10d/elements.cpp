#include "c10d/elements.hpp"

#include <fmt/format.h>

#include "gradsync/error.hpp"

namespace gradsync::pytorch {
namespace {

[[noreturn]] void unsupported(const char* call, at::ScalarType type, const std::string& why) {
  throw Error(Status{ErrorCode::unsupported, -1, fmt::format("{} of {}: {}", call, name_of(type), why)});
}

// The type that is one element of the engine, or none.
std::optional<DType> natural(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Byte: return DType::u8;
    case at::ScalarType::Char: return DType::i8;
    case at::ScalarType::Int: return DType::i32;
    case at::ScalarType::Long: return DType::i64;
    case at::ScalarType::Half: return DType::f16;
    case at::ScalarType::BFloat16: return DType::bf16;
    case at::ScalarType::Float: return DType::f32;
    case at::ScalarType::Double: return DType::f64;
    case at::ScalarType::Bool: return DType::boolean;
#if GRADSYNC_TORCH_SINCE(2, 3)
    case at::ScalarType::UInt32: return DType::u32;
    case at::ScalarType::UInt64: return DType::u64;
#endif
    default: return std::nullopt;
  }
}

// The parts of a complex number.
std::optional<DType> part(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::ComplexHalf: return DType::f16;
    case at::ScalarType::ComplexFloat: return DType::f32;
    case at::ScalarType::ComplexDouble: return DType::f64;
    default: return std::nullopt;
  }
}

// 16-bit integers wrap alike whether they are reduced with 16 or with 32 bits.
bool short_integer(at::ScalarType type) {
#if GRADSYNC_TORCH_SINCE(2, 3)
  if (type == at::ScalarType::UInt16) return true;
#endif
  return type == at::ScalarType::Short;
}

bool linear(Operator op) { return op == Operator::SUM || op == Operator::AVG || op == Operator::PREMUL_SUM; }

}  // namespace

Elements elements_to_move(const char* call, at::ScalarType type) {
  if (const auto dtype = natural(type)) return {*dtype, 1};
  if (const auto dtype = part(type)) return {*dtype, 2};
  if (at::isQIntType(type)) unsupported(call, type, "quantized tensors have a scale that would not travel with them");
  return {DType::u8, c10::elementSize(type)};
}

Elements elements_to_reduce(const char* call, at::ScalarType type, Operator op) {
  const ReduceOp reduce = engine_operator(op);
  if (op == Operator::PREMUL_SUM && !at::isFloatingType(type) && !at::isComplexType(type))
    unsupported(call, type, "PREMUL_SUM is defined for floating and complex elements");
  if (const auto dtype = natural(type); dtype && supports(*dtype, reduce)) return {*dtype, 1};
  if (const auto dtype = part(type); dtype && linear(op)) return {*dtype, 2};
  if (short_integer(type)) return {DType::i32, 1, at::ScalarType::Int};
  unsupported(call, type, fmt::format("{} is not defined for these elements", name_of(op)));
}

ReduceOp engine_operator(Operator op) {
  switch (op) {
    case Operator::SUM: return ReduceOp::sum;
    case Operator::AVG: return ReduceOp::avg;
    case Operator::PRODUCT: return ReduceOp::product;
    case Operator::MIN: return ReduceOp::min;
    case Operator::MAX: return ReduceOp::max;
    case Operator::BAND: return ReduceOp::bit_and;
    case Operator::BOR: return ReduceOp::bit_or;
    case Operator::BXOR: return ReduceOp::bit_xor;
    case Operator::PREMUL_SUM: return ReduceOp::sum;
    default: break;
  }
  throw Error(Status{ErrorCode::unsupported, -1, fmt::format("operator number {} is not known", static_cast<int>(op))});
}

double factor_of(const ::c10d::ReduceOp& op) {
  if (op.op_ != Operator::PREMUL_SUM) return 1;
  const auto* factor = dynamic_cast<const ::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor == nullptr)
    throw Error(
        Status{ErrorCode::invalid_argument, -1, "PREMUL_SUM has no factor: make it with _make_nccl_premul_sum"});
#if GRADSYNC_TORCH_SINCE(2, 0)
  const at::Tensor& tensor = factor->tensor_factor;
#else
  if (factor->tensor_factors.empty()) return factor->double_factor;
  const at::Tensor& tensor = factor->tensor_factors.front();
#endif
  if (!tensor.defined()) return factor->double_factor;
  if (tensor.numel() != 1 || tensor.is_complex())
    throw Error(Status{ErrorCode::invalid_argument, -1,
                       fmt::format("the factor of PREMUL_SUM has {} elements of {}, expected one real number",
                                   tensor.numel(), name_of(tensor.scalar_type()))});
  return tensor.item().toDouble();
}

const char* name_of(Operator op) {
  static constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "an unknown operator";
}

std::string name_of(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Byte: return "uint8";
    case at::ScalarType::Char: return "int8";
    case at::ScalarType::Short: return "int16";
    case at::ScalarType::Int: return "int32";
    case at::ScalarType::Long: return "int64";
    case at::ScalarType::Half: return "float16";
    case at::ScalarType::Float: return "float32";
    case at::ScalarType::Double: return "float64";
    case at::ScalarType::ComplexHalf: return "complex32";
    case at::ScalarType::ComplexFloat: return "complex64";
    case at::ScalarType::ComplexDouble: return "complex128";
    case at::ScalarType::Bool: return "bool";
    case at::ScalarType::BFloat16: return "bfloat16";
    default: return c10::toString(type);
  }
}

}  // namespace gradsync::pytorch
