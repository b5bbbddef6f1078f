// What one rank sends, receives and adds up in one operation: exactly what its live counters will show.
#pragma once

#include <cstdint>

#include "algorithms/world.hpp"
#include "schedule/layouts.hpp"

namespace gradsync {

// A message counts even if it is empty. Bytes are elements times the element size, without headers.
struct Traffic {
  std::uint64_t messages_sent = 0, bytes_sent = 0;
  std::uint64_t messages_received = 0, bytes_received = 0;
  std::uint64_t elements_reduced = 0;  // by a receive or a local step in mode combine

  Traffic& operator+=(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// Of one step of a rank with this shape and these layouts.
Traffic traffic_of(const Step& step, const Shape& shape, const Layouts& layouts, std::uint64_t element_bytes);
// Of a rank's whole schedule, walked step by step: no peers, no memory. Requires check(recipe).ok(), rank <
// recipe.world. A send or recv recipe is that of the rank itself.
Traffic traffic_of(const Recipe& recipe, std::uint32_t rank, const Layouts& layouts, std::uint64_t element_bytes);

}  // namespace gradsync
