// From tensors to memory for the engine, and back. The engine wants elements one after another in the order of their indices.
// A tensor whose elements lie so is used in place; any other (sliced, transposed, channels-last, conjugated, of a type that is
// converted) gets a contiguous copy, and where the engine writes, the copy is written back when the operation has ended well.
// So the n-th index means the same element on every rank, whatever the strides are on each.
#pragma once

#include <vector>

#include "c10d/elements.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync::pytorch {

// Memory is read and written as memory: no gradient is recorded and no version counted, also of inference tensors.
struct AsMemory {
  at::AutoDispatchBelowADInplaceOrView guard;
};

// What is copied when the operation has ended.
struct CopyBack {
  at::Tensor to, from;  // `from` is converted, and has the shape of `to`
};

// Throws Error(unsupported) for what is not a dense tensor in the memory of the CPU.
void check_dense(const char* call, const at::Tensor& tensor);
// Also for memory that several elements share: it cannot be written.
void check_writable(const char* call, const at::Tensor& tensor);
// Throws Error(invalid_argument) for other than one tensor: one process is one rank, with one tensor a call.
const at::Tensor& only(const char* call, const char* what, const std::vector<at::Tensor>& tensors);
// Throws Error(invalid_argument) unless both have the same element type.
void check_same_type(const char* call, const at::Tensor& a, const at::Tensor& b);

// Whether the engine can use the tensor's memory itself.
bool in_order(const at::Tensor& tensor);
// Contiguous memory with the values of the tensor, its own where that will do.
at::Tensor readable(const at::Tensor& tensor, at::ScalarType staged = at::ScalarType::Undefined);
// Contiguous memory for new values of the tensor. Its own, or staging that `copies` notes to be written back. `keep`: with the
// present values.
at::Tensor writable(const at::Tensor& tensor, std::vector<CopyBack>& copies, bool keep,
                    at::ScalarType staged = at::ScalarType::Undefined);

// Several tensors, one after another. Their own memory where they lie so already (the chunks of one tensor), else staging.
at::Tensor readable_all(const std::vector<at::Tensor>& tensors, at::ScalarType staged = at::ScalarType::Undefined);
at::Tensor writable_all(const std::vector<at::Tensor>& tensors, std::vector<CopyBack>& copies, bool keep,
                        at::ScalarType staged = at::ScalarType::Undefined);

View view_of(const at::Tensor& contiguous, const Elements& elements);
std::size_t count_of(const at::Tensor& tensor, const Elements& elements);
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements);

std::string describe(const at::Tensor& tensor);  // "float32 [2, 3]"

}  // namespace gradsync::pytorch
