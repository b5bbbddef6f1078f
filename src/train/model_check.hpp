// That all ranks hold the same model, before anything is exchanged by position.
#pragma once

#include <span>

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

// Collective. mismatch on every rank, in the same words, if counts, names, shapes, dtypes or sparseness differ: names rank 0
// and the lowest rank that differs from it, with their hosts, both counts, and the first parameter that differs, as each
// of the two has it. `what` is what the parameters are called ("parameters", "buffers").
void check_same_model(Communicator& comm, std::span<const Parameter> parameters, const char* what);

// "layer1.weight (f32 [64, 3, 7, 7])"
std::string describe(const Parameter& parameter);

}  // namespace gradsync
