// Enumerations of C, which may be any number, as those of C++, which may not.
#pragma once

#include <cstdint>
#include <string>

#include "c/guard.hpp"
#include "gradsync/types.hpp"

namespace gradsync::c {

DType dtype_of(std::int32_t number);
ReduceOp op_of(std::int32_t number);
Collective collective_of(std::int32_t number);
Algorithm algorithm_of(std::int32_t number);
TransportKind transport_of(std::int32_t number);

}  // namespace gradsync::c
