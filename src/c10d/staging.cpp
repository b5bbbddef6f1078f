#include "c10d/staging.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "c10d/overlap.hpp"

namespace gradsync::pytorch {
namespace {

[[noreturn]] void refuse(ErrorCode code, std::string message) { throw Error(Status{code, -1, std::move(message)}); }

bool needs_no_type(const at::Tensor& tensor, at::ScalarType staged) {
  return staged == at::ScalarType::Undefined || staged == tensor.scalar_type();
}

at::ScalarType type_of(const at::Tensor& tensor, at::ScalarType staged) {
  return staged == at::ScalarType::Undefined ? tensor.scalar_type() : staged;
}

// Uninitialised.
at::Tensor memory_for(std::int64_t elements, at::ScalarType type) {
  return at::empty({elements}, at::TensorOptions().dtype(type).device(at::kCPU));
}

// Whether each tensor begins where the one before ends, in one storage.
bool adjacent(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty() || !in_order(tensors.front())) return false;
  std::int64_t next = tensors.front().storage_offset();
  for (const at::Tensor& tensor : tensors) {
    const bool here = in_order(tensor) && tensor.storage().is_alias_of(tensors.front().storage()) &&
                      tensor.scalar_type() == tensors.front().scalar_type() && tensor.storage_offset() == next;
    if (!here) return false;
    next += tensor.numel();
  }
  return true;
}

std::int64_t elements_in(const std::vector<at::Tensor>& tensors) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

at::Tensor spanning(const std::vector<at::Tensor>& tensors) {
  return tensors.front().as_strided({elements_in(tensors)}, {1}, tensors.front().storage_offset());
}

}  // namespace

void check_dense(const char* call, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse(ErrorCode::invalid_argument, fmt::format("{}: the tensor is undefined", call));
  if (!tensor.device().is_cpu())
    refuse(ErrorCode::unsupported, fmt::format("{}: the tensor {} is on {}, gradsync supports tensors on cpu", call,
                                               describe(tensor), tensor.device().str()));
  if (tensor.layout() != at::kStrided)
    refuse(ErrorCode::unsupported,
           fmt::format("{}: the tensor {} is sparse, which only all_reduce supports (COO)", call, describe(tensor)));
}

void check_writable(const char* call, const at::Tensor& tensor) {
  check_dense(call, tensor);
  if (overlaps_itself(tensor))
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: elements of the tensor {} with strides [{}] share memory, so it cannot be written", call,
                       describe(tensor), fmt::join(tensor.strides(), ", ")));
}

const at::Tensor& only(const char* call, const char* what, const std::vector<at::Tensor>& tensors) {
  if (tensors.size() != 1)
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: {} {} tensors, expected 1: a process is one rank", call, tensors.size(), what));
  return tensors.front();
}

void check_same_type(const char* call, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type())
    refuse(ErrorCode::invalid_argument,
           fmt::format("{}: the tensors {} and {} have different element types", call, describe(a), describe(b)));
}

bool in_order(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

at::Tensor readable(const at::Tensor& tensor, at::ScalarType staged) {
  if (in_order(tensor) && needs_no_type(tensor, staged)) return tensor;
  return memory_for(tensor.numel(), type_of(tensor, staged)).view(tensor.sizes()).copy_(tensor);
}

at::Tensor writable(const at::Tensor& tensor, std::vector<CopyBack>& copies, bool keep, at::ScalarType staged) {
  if (in_order(tensor) && needs_no_type(tensor, staged)) return tensor;
  at::Tensor memory = memory_for(tensor.numel(), type_of(tensor, staged)).view(tensor.sizes());
  if (keep) memory.copy_(tensor);
  copies.push_back({tensor, memory});
  return memory;
}

at::Tensor readable_all(const std::vector<at::Tensor>& tensors, at::ScalarType staged) {
  if (adjacent(tensors) && needs_no_type(tensors.front(), staged)) return spanning(tensors);
  const at::Tensor memory = memory_for(elements_in(tensors), type_of(tensors.front(), staged));
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    memory.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    at += tensor.numel();
  }
  return memory;
}

at::Tensor writable_all(const std::vector<at::Tensor>& tensors, std::vector<CopyBack>& copies, bool keep,
                        at::ScalarType staged) {
  if (adjacent(tensors) && needs_no_type(tensors.front(), staged)) return spanning(tensors);
  const at::Tensor memory = memory_for(elements_in(tensors), type_of(tensors.front(), staged));
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back({tensor, memory.narrow(0, at, tensor.numel()).view(tensor.sizes())});
    if (keep) copies.back().from.copy_(tensor);
    at += tensor.numel();
  }
  return memory;
}

View view_of(const at::Tensor& contiguous, const Elements& elements) {
  return {contiguous.data_ptr(), count_of(contiguous, elements), elements.dtype};
}

std::size_t count_of(const at::Tensor& tensor, const Elements& elements) {
  return static_cast<std::size_t>(tensor.numel()) * elements.each;
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(count_of(tensor, elements));
  return counts;
}

std::string describe(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

}  // namespace gradsync::pytorch
