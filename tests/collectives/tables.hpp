// The patterns of one kind of message: what each rank contributes and what comes out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

// Where the reductions of floats of all magnitudes must lie, by entry.
class Bounds {
 public:
  Bounds(DType dtype, ReduceOp op, std::uint32_t ranks);
  // The first of `count` elements of message `salt`, from `position` on, that lies outside.
  std::optional<std::size_t> outside(const std::byte* got, std::uint64_t salt, std::size_t position,
                                     std::size_t count) const;
  std::string text(Bits got, std::uint64_t salt, std::size_t position) const;  // "1.5, expected 2 within 0.1"

 private:
  long double value(const std::byte* got) const;

  DType dtype_;
  std::vector<Interval> intervals_;
  std::vector<double> halves_;  // the value of all 16 bit patterns
};
Pattern wide_pattern(DType dtype, std::uint32_t rank);

}  // namespace gradsync::test
