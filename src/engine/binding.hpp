// A schedule's chunks bound to memory, element type and operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.hpp"
#include "schedule/layout.hpp"
#include "schedule/shape.hpp"

namespace gradsync {

// The memory of a cyclic range: one stretch, or two where it wraps. Positions count bytes from its start.
class Region {
 public:
  struct Stretch {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  Region() = default;
  Region(Stretch first, Stretch second) : stretches_{first, second} {}

  std::uint64_t bytes() const { return stretches_[0].bytes + stretches_[1].bytes; }
  const std::array<Stretch, 2>& stretches() const { return stretches_; }
  // What lies contiguously from `position` on.
  Stretch from(std::uint64_t position) const {
    const Stretch& a = stretches_[0];
    if (position < a.bytes) return {a.data + position, a.bytes - position};
    const Stretch& b = stretches_[1];
    return {b.data + (position - a.bytes), b.bytes - (position - a.bytes)};
  }

 private:
  std::array<Stretch, 2> stretches_;
};

// The lowest position of `mine`, at or after `mine_done`, whose byte is one of `theirs` at or after `theirs_done`;
// mine.bytes() if there is none.
std::uint64_t first_conflict(const Region& mine, std::uint64_t mine_done, const Region& theirs,
                             std::uint64_t theirs_done);

// A value: copies freely, owns nothing. `input` is only read.
struct Binding {
  struct Memory {
    std::byte* data = nullptr;
    Layout layout;  // of the whole message; the space's window says which part `data` holds
  };
  Shape shape;
  std::array<Memory, 3> spaces;  // by Space
  kernels::Work work = kernels::Work::u8;
  std::uint64_t element_bytes = 1;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t divisor = 1;  // the steps that write last divide by it (see division.hpp); floats only

  Region region(Space space, Range range) const;
  std::uint64_t elements(Space space) const;  // of the whole space
};

}  // namespace gradsync
