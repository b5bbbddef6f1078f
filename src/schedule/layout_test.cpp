#include "schedule/layout.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gradsync {
namespace {

std::vector<std::uint64_t> sizes_of(const Layout& layout) {
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) sizes.push_back(layout.size(chunk));
  return sizes;
}

using Sizes = std::vector<std::uint64_t>;
using Weights = std::vector<std::uint32_t>;

TEST(Layout, IsCutInProportionToItsWeights) {
  EXPECT_EQ(sizes_of(Layout::weighted(12, Weights{0, 1, 1, 1})), (Sizes{0, 4, 4, 4}));
  EXPECT_EQ(sizes_of(Layout::weighted(10, Weights{1, 2, 2})), (Sizes{2, 4, 4}));
  EXPECT_EQ(sizes_of(Layout::weighted(10, Weights{1, 1, 1})), (Sizes{3, 3, 4}));  // starts are rounded down
  EXPECT_EQ(sizes_of(Layout::weighted(7, Weights{0, 0, 5})), (Sizes{0, 0, 7}));
  EXPECT_EQ(sizes_of(Layout::weighted(0, Weights{3, 1})), (Sizes{0, 0}));
  EXPECT_EQ(sizes_of(Layout::weighted(1, Weights{1, 1, 1})), (Sizes{0, 0, 1}));
}

TEST(Layout, CutsEachWeightedPartIntoSegments) {
  EXPECT_EQ(sizes_of(Layout::weighted(12, Weights{0, 1, 2}, 1, 2)), (Sizes{0, 0, 2, 2, 4, 4}));
  EXPECT_EQ(sizes_of(Layout::weighted(9, Weights{1, 2}, 1, 2)), (Sizes{2, 1, 3, 3}));
}

TEST(Layout, CutsEachStretchByTheWeights) {
  EXPECT_EQ(sizes_of(Layout::weighted(13, Weights{1, 2}, 2)), (Sizes{2, 5, 2, 4}));
  EXPECT_EQ(sizes_of(Layout::weighted(6, Weights{0, 1}, 3)), (Sizes{0, 2, 0, 2, 0, 2}));
}

TEST(Layout, HoldsEveryElementOnceAtAnySizeAndWeights) {
  const std::array<Weights, 4> all{Weights{1, 1, 1, 1}, Weights{65535, 0, 1, 0}, Weights{0xfffffff0u, 1, 2, 3},
                                   Weights{7, 3, 0, 11}};
  for (const std::uint64_t elements : {std::uint64_t{1}, std::uint64_t{997}, std::uint64_t{1} << 46})
    for (const Weights& weights : all)
      for (const std::uint32_t stretches : {1u, 3u})
        for (const std::uint32_t segments : {1u, 5u}) {
          const Layout layout = Layout::weighted(elements, weights, stretches, segments);
          ASSERT_EQ(layout.chunks(), weights.size() * stretches * segments);
          std::uint64_t sum = 0;
          for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
            ASSERT_LE(layout.offset(chunk), layout.offset(chunk + 1));
            sum += layout.size(chunk);
            if (weights[chunk / segments % weights.size()] == 0) { EXPECT_EQ(layout.size(chunk), 0u); }
          }
          EXPECT_EQ(sum, elements);
          EXPECT_EQ(layout.offset(layout.chunks()), elements);
        }
}

}  // namespace
}  // namespace gradsync
