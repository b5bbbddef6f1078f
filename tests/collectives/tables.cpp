#include "collectives/tables.hpp"

#include "base/random.hpp"

namespace gradsync::test {

std::vector<Pattern> moved_patterns(DType dtype, std::uint32_t ranks) {
  std::vector<Pattern> patterns;
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    patterns.emplace_back(dtype, [&](std::size_t i) {
      const Bits any = mix64(mix64(rank + 77) + i);
      return dtype == DType::boolean ? any & 1 : any;
    });
  return patterns;
}

ReducedPatterns reduced_patterns(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t ranks) {
  std::vector<Bits> terms(ranks);
  return {Pattern(dtype, [&](std::size_t i) { return exact_contribution(dtype, op, rank, i); }),
          Pattern(dtype, [&](std::size_t i) {
            for (std::uint32_t r = 0; r < ranks; ++r) terms[r] = exact_contribution(dtype, op, r, i);
            return reduced(dtype, op, terms);
          })};
}

BoundedPatterns bounded_patterns(DType dtype, ReduceOp op, std::uint32_t rank, std::uint32_t ranks) {
  std::vector<Bits> terms(ranks);
  BoundedPatterns patterns{Pattern(dtype, [&](std::size_t i) { return wide_contribution(dtype, rank, i); }), {}};
  for (std::size_t i = 0; i < Pattern::length; ++i) {
    for (std::uint32_t r = 0; r < ranks; ++r) terms[r] = wide_contribution(dtype, r, i);
    patterns.result.push_back(bounded(dtype, op, terms));
  }
  return patterns;
}

}  // namespace gradsync::test
