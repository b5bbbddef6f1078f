// The choice of an algorithm for a call, from a measured network.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulate/estimate.hpp"

namespace gradsync {

struct ChoiceQuery {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  // of the message, or of a block where the collective has blocks
  std::uint32_t world = 1;
  std::span<const std::uint32_t> hosts;  // as in Recipe
};

struct Choice {
  Algorithm algorithm = Algorithm::ring;
  std::uint32_t segments = 1;
  double seconds = 0;                      // forecast
  bool simulated = true;                   // otherwise estimated
  std::vector<std::uint32_t> shards = {};  // as in Recipe
};

// The fastest of the catalogue, root 0, with 1, 2, 4, … 64 segments where it pipelines, and, where hosts differ, with the
// shards that suit them (shards.hpp) too. Every candidate is estimated
// first (estimate.hpp); then, algorithm by algorithm in the order of the estimates and from the best number of segments
// outwards while it gets better, they are simulated, except those that cannot win: whose lower bound is above the best
// so far, or whose estimate is over four times that. Two limits bound the time: an algorithm in which all ranks do the
// same is simulated only up to `symmetric_messages_max` messages and its estimate, then exact or close, taken above;
// and a candidate of any other kind that would bring the messages simulated in all above `simulated_messages_max` is
// left out. Ties, which are times within 1e-9 of each other, go to the better estimate, then to the order of the
// catalogue. Pure: equal queries and networks give the same choice on every rank, so that ranks agree without talking,
// whatever floating-point mode their threads are in. Fails where the catalogue has nothing for the
// collective in such a world.
Result<Choice> choose(const ChoiceQuery& query, const Network& network);
inline constexpr std::uint64_t symmetric_messages_max = 10'000, simulated_messages_max = 150'000;

// Every candidate with its forecast, best first: what a person compares.
Result<std::vector<Choice>> rank_candidates(const ChoiceQuery& query, const Network& network);

}  // namespace gradsync
