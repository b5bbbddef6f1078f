// The patterns of one kind of message: what each rank contributes and what comes out.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/pattern.hpp"

namespace gradsync::test {

// Any bytes (0 and 1 for booleans): messages that are only moved. One pattern a rank.
std::vector<Pattern> moved_patterns(DType dtype, std::uint32_t ranks);

// Messages that are reduced: this rank's contribution and the result, exact to the bit.
struct ReducedPatterns {
  Pattern mine, result;
};
ReducedPatterns reduced_patterns(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t ranks);

// Floats of all magnitudes: this rank's contribution and where the result must lie, by entry.
struct BoundedPatterns {
  Pattern mine;
  std::vector<Interval> result;
};
BoundedPatterns bounded_patterns(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t ranks);

}  // namespace gradsync::test
