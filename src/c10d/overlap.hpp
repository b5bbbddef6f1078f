// Which tensors share memory. What several outputs share, or an output and an input, would depend on who moves first: such calls are
// refused before anything moves. Where address ranges are apart, as they nearly always are, nothing else is looked at.
#pragma once

#include <vector>

#include "c10d/version.hpp"

namespace gradsync::pytorch {

// Whether two elements of the tensor have a byte in common.
bool overlaps_itself(const at::Tensor& tensor);

// Whether the tensor lies exactly where `place` does; nothing is where an undefined one is.
bool in_place(const at::Tensor& tensor, const at::Tensor& place);

// Throws Error(invalid_argument) where two outputs, or an output and an input, have a byte in common. Input i may lie in place at
// places[i], if there is one.
void check_apart(const char* call, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs = {},
                 const std::vector<at::Tensor>& places = {});

// Where the inputs for each of `ranks` may lie if only this rank's may, and that at the output.
std::vector<at::Tensor> place_of(const at::Tensor& output, int rank, std::size_t ranks);

// The elements of `whole` that are rank's, where each rank has as many as `part`. Undefined where they do not lie together.
at::Tensor block_of(const at::Tensor& whole, int rank, const at::Tensor& part);

}  // namespace gradsync::pytorch
