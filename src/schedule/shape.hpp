// How many chunks each space of one rank's schedule has, and how they lie in the whole message.
#pragma once

#include <cstdint>

#include "schedule/step.hpp"

namespace gradsync {

// A space that shows chunks [first, first + count) of the message's layout, without wrap.
struct Window {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const Window&, const Window&) = default;
};

// The message has `chunks` chunks in all (see Layout). Input and output are windows of it: in an all-gather the input is
// the rank's own block and the output everything. Scratch is `scratch_copies` whole copies of the message's chunks;
// chunk j of scratch has the size of chunk j mod chunks, and ranges wrap within their copy.
// A window of count 0 is a space that the rank does not have (the output of a reduce on a rank that is not root).
struct Shape {
  std::uint32_t chunks = 0;
  Window input;
  Window output;
  std::uint32_t scratch_copies = 0;

  std::uint32_t size(Space space) const {
    if (space == Space::input) return input.count;
    return space == Space::output ? output.count : chunks * scratch_copies;
  }
  // The length after which a range wraps.
  std::uint32_t cycle(Space space) const {
    if (space == Space::input) return input.count;
    return space == Space::output ? output.count : chunks;
  }
  // The i-th chunk of a range that starts at `first`.
  std::uint32_t chunk(Space space, std::uint32_t first, std::uint32_t i) const {
    const std::uint32_t length = cycle(space), group = first / length * length;
    return group + (first - group + i) % length;
  }
  // Which chunk of the message a chunk of the space is.
  std::uint32_t message_chunk(Space space, std::uint32_t chunk_index) const {
    if (space == Space::input) return input.first + chunk_index;
    return space == Space::output ? output.first + chunk_index : chunk_index % chunks;
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

}  // namespace gradsync
