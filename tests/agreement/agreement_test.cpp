// Proof, forecast and a rank's own count walk the same schedules and must count the same messages, elements and
// additions.
#include <gtest/gtest.h>

#include <algorithm>

#include "simulate/forecast.hpp"
#include "verify/table.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kElementBytes = 4;

void expect_agreement(const Recipe& recipe, std::uint64_t count) {
  ProveOptions options;
  options.layouts = layouts_of_count(count);
  const Proof proof = prove(recipe, options);
  ASSERT_TRUE(proof.ok()) << proof.status.message;
  const Network network = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
  const Result<Forecast> forecast = simulate(recipe, count, kElementBytes, network);
  ASSERT_TRUE(forecast.ok()) << forecast.status().message;
  ProofCounts counts = proof.counts;  // steps, staging and window are the proof's alone
  counts.messages = forecast->total.messages_sent;
  counts.sent = forecast->total.bytes_sent / kElementBytes;
  counts.reduced = forecast->total.elements_reduced;
  counts.messages_max = counts.sent_max = counts.reduced_max = 0;
  for (const Traffic& rank : forecast->ranks) {
    counts.messages_max = std::max(counts.messages_max, rank.messages_sent);
    counts.sent_max = std::max(counts.sent_max, rank.bytes_sent / kElementBytes);
    counts.reduced_max = std::max(counts.reduced_max, rank.elements_reduced);
  }
  EXPECT_EQ(counts, proof.counts) << name_of(recipe.collective) << ' ' << name_of(recipe.algorithm) << " of "
                                  << recipe.world << ", count " << count;
}

TEST(Agreement, OfProofAndForecastInEveryCount) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t world : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 33u}) {
      if ((entry.collective == Collective::send || entry.collective == Collective::recv) && world != 2) continue;
      for (const Recipe& recipe : variants_of(entry, world))
        for (std::uint64_t count : {0u, 1u, 1000u}) expect_agreement(recipe, count);
    }
}

}  // namespace
}  // namespace gradsync
