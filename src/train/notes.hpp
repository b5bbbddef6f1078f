// What every rank says about itself when a step has gone wrong, so that all throw the same error in that very step.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

struct RankNote {
  Status failed;                       // what went wrong on this rank alone
  std::vector<std::uint32_t> missing;  // parameters that were not ready, the first few
  std::uint64_t missing_total = 0;
  std::int64_t not_finite = -1;  // the parameter
  std::uint64_t at = 0;          // the first such element, or row value, of it
};

// What all ranks know of a step from the sums that travelled with it.
struct StepSums {
  std::uint64_t samples = 0;
  std::uint32_t ranks_run_out = 0, ranks_not_finite = 0, ranks_order_differs = 0, ranks_failed = 0;
  bool missing = false;  // some rank had no gradient for some parameter, and none may be missing
};
// Of two messages of one step: flags come later than the first.
void merge(StepSums& into, const StepSums& from);

// Collective on `control`; a world of one exchanges nothing.
std::vector<RankNote> exchange_notes(Communicator& control, std::uint32_t rank, std::uint32_t world,
                                     const RankNote& mine);

struct Blame {
  std::span<const Parameter> parameters;
  std::uint64_t step = 0;
  std::function<std::string(int)> describe;  // a rank
};
// In the same words on every rank: failures first, then what is missing, then what is not finite.
Status verdict_of(std::span<const RankNote> notes, const Blame& blame);

}  // namespace gradsync
