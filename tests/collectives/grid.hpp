// Which calls a job makes: the same on every rank, known to the test without asking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call.hpp"

namespace gradsync::test {

inline constexpr std::size_t kSmallMost = 4093;  // up to here every algorithm meets every dtype and operator
inline constexpr std::size_t kMiddle = 65537;    // primes near 64 K and 1 M
inline constexpr std::size_t kLarge = 1048573;

// 1, 2, P-1, P, P+1, 2P-1, 2P+1 and primes near 4 K, 64 K and 1 M, each once.
std::vector<std::size_t> counts_of(std::uint32_t size);
std::vector<Collective> reducing_collectives();
// Those that only move; send stands for send and recv around the circle of ranks, which needs two of them.
std::vector<Collective> moving_collectives(std::uint32_t size);

struct Kind {
  Collective collective;
  DType dtype;
  ReduceOp op = ReduceOp::sum;
  auto operator<=>(const Kind&) const = default;
};
// How many (collective, dtype, operator) there are for a world, each to be called with each of the counts.
std::size_t kinds_total(std::uint32_t size);

// The calls of one kind and count, in order, except for their salts and roots. Up to kSmallMost: every algorithm and the
// automatic choice, both in place and not in place for the latter, alternately for the others. Above: the automatic
// choice, in place every other time; for three kinds of reductions every algorithm, both ways.
std::vector<Call> calls_of(Kind kind, std::size_t count);

}  // namespace gradsync::test
