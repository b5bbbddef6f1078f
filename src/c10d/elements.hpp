// How the engine sees the elements of a tensor. It knows 11 element types, PyTorch more: a complex number is reduced as its
// two parts, 16-bit integers as 32-bit ones in staging, and whatever is only moved may travel as bytes.
#pragma once

#include <string>

#include "c10d/version.hpp"
#include "gradsync/types.hpp"

namespace gradsync::pytorch {

using Operator = ::c10d::ReduceOp::RedOpType;

struct Elements {
  DType dtype = DType::f32;
  std::size_t each = 1;  // of the engine for one of the tensor
  at::ScalarType staged =
      at::ScalarType::Undefined;  // converted to this type before and back after; Undefined: as it is
};

// For moving without arithmetic. `call` names the call in errors, here and below. Throws Error(unsupported).
Elements elements_to_move(const char* call, at::ScalarType type);
// For reducing. Throws Error(unsupported), naming element type and operator.
Elements elements_to_reduce(const char* call, at::ScalarType type, Operator op);
// The engine's operator; that of PREMUL_SUM, whose factor has been applied before, is sum.
ReduceOp engine_operator(Operator op);

// The factor of PREMUL_SUM; 1 for the others. Throws Error(invalid_argument) for what is not one real number.
double factor_of(const ::c10d::ReduceOp& op);

const char* name_of(Operator op);          // as in Python: "PREMUL_SUM"
std::string name_of(at::ScalarType type);  // as in Python: "complex64"

}  // namespace gradsync::pytorch
