// A bucket cut in one slice a rank, for the reduce-scatter and for sums that the ranks share out.
#pragma once

#include <cstdint>
#include <vector>

#include "train/bucket_plan.hpp"

namespace gradsync {

// Elements of each rank's slice, one after another: as equal as 64-byte units allow, so that two ranks never write one line.
std::vector<std::size_t> slices_of(const PlannedBucket& bucket, std::uint32_t world);

struct Slice {  // elements of the bucket
  std::uint64_t begin = 0, count = 0;
};
Slice slice_of(const PlannedBucket& bucket, std::uint32_t world, std::uint32_t rank);

}  // namespace gradsync
