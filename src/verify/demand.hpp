// What a collective promises of every chunk of every rank's output.
#pragma once

#include <cstdint>

#include "base/status.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

// The chunk must hold message chunk `chunk`, contributed by `from` alone, or by each rank once.
struct Demand {
  static constexpr std::uint32_t everyone = 0xffffffffu;
  std::uint32_t chunk = 0;
  std::uint32_t from = everyone;
  friend bool operator==(const Demand&, const Demand&) = default;
};

// Requires check_shape(recipe, shape, rank).ok() and output_chunk < shape.output.count. Message chunks of an all-to-all
// are numbered by the sender's input: block b of it goes to rank b.
Demand demand_of(const Recipe& recipe, const Shape& shape, std::uint32_t rank, std::uint32_t output_chunk);

// Whether the spaces are those of the collective: a rank that the collective gives nothing has no output, and so on.
Status check_shape(const Recipe& recipe, const Shape& shape, std::uint32_t rank);

}  // namespace gradsync
