#include "verify/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradsync {
namespace {

TEST(ProofTable, HasARowForEachWorldOfTheAskedAlgorithm) {
  ProofTableOptions options;
  options.ranks_min = 2;
  options.ranks_max = 5;
  options.collective = Collective::all_reduce;
  options.algorithm = Algorithm::ring;
  options.elements = [](Collective, std::uint32_t) { return std::uint64_t{60}; };
  const std::vector<ProofRow> rows = prove_table(options);
  ASSERT_EQ(rows.size(), 4u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(rows[i].ok) << rows[i].message;
    EXPECT_EQ(rows[i].world, i + 2);
    EXPECT_EQ(rows[i].variants, 1u);
    EXPECT_EQ(rows[i].counts.steps, 2u * (i + 1));
    EXPECT_EQ(rows[i].counts.sent, 2u * (i + 1) * 60);
  }
}

TEST(ProofTable, ProvesEveryRootSegmentationAndGrouping) {
  const CatalogueEntry& tree = *find_in_catalogue(Collective::broadcast, Algorithm::tree);
  EXPECT_EQ(variants_of(tree, 7).size(), 7u * 4);
  EXPECT_EQ(variants_of(tree, 100).size(), 3u * 4);
  EXPECT_EQ(variants_of(tree, 1000).size(), 1u);
  const CatalogueEntry& levels = *find_in_catalogue(Collective::all_reduce, Algorithm::hierarchical);
  const std::vector<Recipe> groupings = variants_of(levels, 9);
  EXPECT_GE(groupings.size(), 7u);
  const std::vector<std::uint32_t> unequal{0, 1, 1, 2, 2, 2, 3, 3, 3}, dealt{0, 1, 2, 0, 1, 2, 0, 1, 2};
  for (const auto& hosts : {unequal, dealt})
    EXPECT_TRUE(std::any_of(groupings.begin(), groupings.end(), [&](const Recipe& r) { return r.hosts == hosts; }));
}

TEST(ProofTable, ReachesEveryEntryOfTheCatalogue) {
  ProofTableOptions options;
  options.ranks_min = options.ranks_max = 2;
  EXPECT_EQ(prove_table(options).size(), catalogue().size());
}

}  // namespace
}  // namespace gradsync
