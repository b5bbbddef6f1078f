// Everything in the catalogue is proven: nothing else may be called a collective of gradsync.
#include <gtest/gtest.h>

#include <cstdio>

#include "verify/table.hpp"

namespace gradsync {
namespace {

TEST(Catalogue, IsProvenForEveryWorldUpTo33) {
  std::uint64_t recipes = 0;
  ProofTableOptions options;
  options.ranks_max = 33;
  prove_table(options, [&](const ProofRow& row) {
    EXPECT_TRUE(row.ok) << row.message;
    recipes += row.variants;
  });
  std::printf("proven: %lu recipes of %zu entries\n", static_cast<unsigned long>(recipes), catalogue().size());
  EXPECT_GE(recipes, catalogue().size());
}

TEST(Catalogue, IsProvenForSomeWorldsUpTo256BySets) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t world : {64u, 65u, 97u}) {
      const bool pair = entry.collective == Collective::send || entry.collective == Collective::recv;
      if (pair) continue;
      const ProofRow row = prove_row(entry, world);
      EXPECT_TRUE(row.ok) << row.message;
    }
  for (const CatalogueEntry& entry : catalogue()) {
    if (!entry.log_step) continue;
    const ProofRow row = prove_row(entry, 256);
    EXPECT_TRUE(row.ok) << row.message;
  }
}

TEST(Catalogue, IsProvenAtAThousandRanksByFingerprint) {
  ProofTableOptions options;
  options.ranks_min = options.ranks_max = 1000;
  options.log_step_only = true;
  prove_table(options, [&](const ProofRow& row) { EXPECT_TRUE(row.ok) << row.message; });
}

TEST(Catalogue, IsProvenAt4096RanksByFingerprint) {
  ProofTableOptions options;
  options.ranks_min = options.ranks_max = 4096;
  options.log_step_only = true;
  options.collective = Collective::all_reduce;
  prove_table(options, [&](const ProofRow& row) { EXPECT_TRUE(row.ok) << row.message; });
}

// DESIGN, section 5. All agree. They decide what a step is: the strict causal chain of recursive doubling by 3 ranks is 2
// messages, because the third rank need not wait for the fold; the 3 of the design counts its rounds (ProofCounts::steps).
struct Golden {
  Algorithm algorithm;
  std::uint32_t world;
  std::uint64_t steps, sent_max, sent, reduced_max, reduced, messages_max;
};

class GoldenCounters : public testing::TestWithParam<Golden> {};

TEST_P(GoldenCounters, AreThoseOfTheProof) {
  const Golden& golden = GetParam();
  ProveOptions options;
  options.layouts = layouts_of_count(8 * golden.world);
  const Recipe recipe{Collective::all_reduce, golden.algorithm, golden.world, 0, 1, {}};
  const Proof proof = prove_all_aliasings(recipe, options);
  ASSERT_TRUE(proof.ok()) << proof.status.message;
  EXPECT_EQ(proof.counts.steps, golden.steps);
  EXPECT_EQ(proof.counts.sent_max, golden.sent_max);
  EXPECT_EQ(proof.counts.sent, golden.sent);
  EXPECT_EQ(proof.counts.reduced_max, golden.reduced_max);
  EXPECT_EQ(proof.counts.reduced, golden.reduced);
  EXPECT_EQ(proof.counts.messages_max, golden.messages_max);
}

constexpr auto kRing = Algorithm::ring, kDoubling = Algorithm::recursive_doubling,
               kHalving = Algorithm::halving_doubling, kCirculant = Algorithm::circulant,
               kTwoShot = Algorithm::two_shot, kOneShot = Algorithm::one_shot;

INSTANTIATE_TEST_SUITE_P(
    Design, GoldenCounters,
    testing::Values(Golden{kRing, 3, 4, 32, 96, 16, 48, 4}, Golden{kDoubling, 3, 3, 48, 96, 48, 72, 2},
                    Golden{kHalving, 3, 5, 60, 108, 24, 48, 4}, Golden{kCirculant, 3, 4, 32, 96, 16, 48, 4},
                    Golden{kTwoShot, 3, 2, 32, 96, 16, 48, 4}, Golden{kOneShot, 3, 1, 48, 144, 48, 144, 2},
                    Golden{kRing, 5, 8, 64, 320, 32, 160, 8}, Golden{kDoubling, 5, 4, 120, 400, 120, 360, 3},
                    Golden{kHalving, 5, 7, 120, 340, 50, 160, 6}, Golden{kCirculant, 5, 6, 64, 320, 32, 160, 6},
                    Golden{kTwoShot, 5, 2, 64, 320, 32, 160, 8}, Golden{kOneShot, 5, 1, 160, 800, 160, 800, 4},
                    Golden{kRing, 7, 12, 96, 672, 48, 336, 12}, Golden{kDoubling, 7, 4, 168, 784, 168, 616, 3},
                    Golden{kHalving, 7, 7, 168, 756, 70, 336, 6}, Golden{kCirculant, 7, 6, 96, 672, 48, 336, 6},
                    Golden{kTwoShot, 7, 2, 96, 672, 48, 336, 12}, Golden{kOneShot, 7, 1, 336, 2352, 336, 2352, 6},
                    Golden{kRing, 8, 14, 112, 896, 56, 448, 14}, Golden{kDoubling, 8, 3, 192, 1536, 192, 1536, 3},
                    Golden{kHalving, 8, 6, 112, 896, 56, 448, 6}, Golden{kCirculant, 8, 6, 112, 896, 56, 448, 6},
                    Golden{kTwoShot, 8, 2, 112, 896, 56, 448, 14}, Golden{kOneShot, 8, 1, 448, 3584, 448, 3584, 7},
                    Golden{kRing, 12, 22, 176, 2112, 88, 1056, 22}, Golden{kDoubling, 12, 5, 384, 3072, 384, 2688, 4},
                    Golden{kHalving, 12, 9, 312, 2304, 132, 1056, 8}, Golden{kCirculant, 12, 8, 176, 2112, 88, 1056, 8},
                    Golden{kTwoShot, 12, 2, 176, 2112, 88, 1056, 22},
                    Golden{kOneShot, 12, 1, 1056, 12672, 1056, 12672, 11}),
    [](const auto& test) {
      return std::string(name_of(test.param.algorithm)) + "_" + std::to_string(test.param.world);
    });

}  // namespace
}  // namespace gradsync
