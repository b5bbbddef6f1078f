#include "train/slices.hpp"

#include <algorithm>

namespace gradsync {

Slice slice_of(const PlannedBucket& bucket, std::uint32_t world, std::uint32_t rank) {
  const std::uint64_t unit = 64 / size_of(bucket.dtype);
  const std::uint64_t units = (bucket.count + unit - 1) / unit;
  const auto begin_of = [&](std::uint64_t r) { return std::min(bucket.count, (units * r / world) * unit); };
  const std::uint64_t begin = begin_of(rank);
  return {begin, begin_of(rank + std::uint64_t{1}) - begin};
}

std::vector<std::size_t> slices_of(const PlannedBucket& bucket, std::uint32_t world) {
  std::vector<std::size_t> counts(world);
  for (std::uint32_t rank = 0; rank < world; ++rank) counts[rank] = slice_of(bucket, world, rank).count;
  return counts;
}

}  // namespace gradsync
