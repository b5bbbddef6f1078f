#include "train/arena.hpp"

#include <algorithm>
#include <cstring>

namespace gradsync {
namespace {

constexpr DType kGradientTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

std::size_t bytes_of(const BucketPlan& plan, DType dtype) {
  const auto at = static_cast<std::size_t>(dtype);
  return at < plan.arena_elements.size() ? plan.arena_elements[at] * size_of(dtype) : 0;
}

bool is_zero(const View& view) {
  const auto* bytes = static_cast<const unsigned char*>(view.data);
  const std::size_t size = view.count * size_of(view.dtype);
  // Whatever is equal to itself moved by one byte, and begins with zero, is zero.
  return size == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

// Calls body(parameter, elements) for the dense parameters of a dtype.
template <class Body>
void for_each_of(std::span<const Parameter> parameters, DType dtype, Body&& body) {
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (!parameters[p].sparse && parameters[p].dtype == dtype) body(p, parameters[p].elements());
}

}  // namespace

Arena::Arena(Communicator& comm, const BucketPlan& plan) {
  for (DType dtype : kGradientTypes)
    if (const std::size_t bytes = bytes_of(plan, dtype); bytes > 0)
      memory_[static_cast<std::size_t>(dtype)] = comm.allocate(bytes);
}

View Arena::view(DType dtype, std::uint64_t begin, std::uint64_t count) const {
  std::byte* base = memory_[static_cast<std::size_t>(dtype)].data();
  if (base == nullptr) return {nullptr, 0, dtype};
  return {base + begin * size_of(dtype), count, dtype};
}

void move_gradients(Communicator& comm, std::span<const Parameter> parameters, const BucketPlan& from,
                    const BucketPlan& to, Arena& arena) {
  for (DType dtype : kGradientTypes) {
    if (bytes_of(to, dtype) == 0) continue;
    bool zero = true;
    for_each_of(parameters, dtype, [&](std::size_t p, std::size_t elements) {
      zero = zero && is_zero(arena.of(from.places[p], elements));
    });
    if (zero) arena.replace(dtype, {});
    Arena fresh;
    fresh.replace(dtype, comm.allocate(bytes_of(to, dtype)));
    if (!zero)
      for_each_of(parameters, dtype, [&](std::size_t p, std::size_t elements) {
        if (elements == 0) return;
        std::memcpy(fresh.of(to.places[p], elements).data, arena.of(from.places[p], elements).data,
                    elements * size_of(dtype));
      });
    arena.take(dtype, fresh);
  }
}

}  // namespace gradsync
