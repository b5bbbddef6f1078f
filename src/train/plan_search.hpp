// Where to cut the order of gradients into buckets.
#pragma once

#include "train/plan_units.hpp"

namespace gradsync {

// The units of each bucket, ascending; buckets in the order of launching, by their last unit.
using PlanGroups = std::vector<std::vector<std::uint32_t>>;

// Fills each dtype's bucket as far as it takes.
PlanGroups fill_buckets(const PlanUnits& all);
// The fewest buckets that complete within 1 % of the earliest time possible, and of those the earliest.
PlanGroups search_buckets(const PlanUnits& all);

// When the last message is done.
double completion_of(const PlanUnits& all, const PlanGroups& groups);

}  // namespace gradsync
