// Test data whose reductions are known: computed here apart from the library, in whole numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gradsync/types.hpp"

namespace gradsync::cli {

// A message in which element i depends on i modulo a prime, so that a chunk in a wrong place is seen.
class Pattern {
 public:
  static constexpr std::size_t period = 1021;

  // What rank `rank` of `world` brings.
  static Pattern of_rank(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t world);
  // The reduction of all ranks' patterns, exact and rounded once. Requires supports(dtype, op).
  static Pattern reduced(DType dtype, ReduceOp op, std::uint32_t world);

  // The bytes of elements first, first + 1, …; `out` holds whole elements.
  void fill(std::span<std::byte> out, std::uint64_t first) const;
  // Whether `bytes` are those.
  bool equals(std::span<const std::byte> bytes, std::uint64_t first) const;

 private:
  explicit Pattern(DType dtype) : width_(size_of(dtype)), bytes_(period * width_) {}
  void set(DType dtype, std::size_t index, double value);
  void set(DType dtype, std::size_t index, std::int64_t value);
  template <class Visit>  // Visit(part of out's bytes: offset, pattern bytes) -> bool, false stops
  bool for_each_part(std::size_t bytes, std::uint64_t first, Visit&& visit) const;
  std::size_t width_;
  std::vector<std::byte> bytes_;
};

}  // namespace gradsync::cli
