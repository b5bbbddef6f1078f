#include "train/slices.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace gradsync {
namespace {

TEST(Slices, CoverTheBucketInLinesAsEqualAsCanBe) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64})
    for (const std::uint64_t count : {0u, 1u, 7u, 16u, 100u, 1000u, 4099u})
      for (std::uint32_t world = 1; world <= 9; ++world) {
        PlannedBucket bucket;
        bucket.dtype = dtype;
        bucket.count = count;
        const std::vector<std::size_t> counts = slices_of(bucket, world);
        EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), count);
        const std::uint64_t line = 64 / size_of(dtype), lines = (count + line - 1) / line;
        std::uint64_t begin = 0;
        for (std::uint32_t rank = 0; rank < world; ++rank) {
          const Slice slice = slice_of(bucket, world, rank);
          EXPECT_EQ(slice.begin, begin);
          EXPECT_TRUE(slice.begin % line == 0 || slice.begin == count);
          EXPECT_LE(slice.count, (lines / world + 1) * line);
          begin += slice.count;
        }
      }
}

}  // namespace
}  // namespace gradsync
