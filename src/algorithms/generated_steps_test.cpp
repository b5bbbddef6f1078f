#include <gtest/gtest.h>

#include <vector>

#include "algorithms/catalogue.hpp"
#include "base/random.hpp"
#include "schedule/cursor.hpp"

namespace gradsync {
namespace {

// One recipe of every catalogue entry, with what the entry can use.
std::vector<Recipe> recipes(std::uint32_t world) {
  std::vector<Recipe> all;
  for (const CatalogueEntry& entry : catalogue()) {
    Recipe recipe{entry.collective, entry.algorithm, world, 2 % world, entry.pipelines ? 5u : 1u, {}};
    if (entry.algorithm == Algorithm::hierarchical)
      for (std::uint32_t rank = 0; rank < world; ++rank) recipe.hosts.push_back(rank % 3);
    all.push_back(recipe);
  }
  return all;
}

// The numbers of the steps in the order of a random walk.
std::vector<std::uint64_t> walk(StepSource& source, const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  Cursor cursor(source, shape, Aliasing::in_place);
  std::vector<std::uint64_t> order;
  while (!cursor.finished()) {
    std::vector<Cursor::Slot> ready;
    cursor.for_each_live([&](Cursor::Slot slot) {
      if (cursor.ready(slot)) ready.push_back(slot);
      return true;
    });
    const Cursor::Slot chosen = ready.at(random.below(ready.size()));
    order.push_back(cursor.index(chosen));
    cursor.complete(chosen);
  }
  return order;
}

TEST(GeneratedSteps, AreTheScheduleWhateverTheWindow) {
  for (const Recipe& recipe : recipes(7))
    for (std::uint32_t window : {1u, 3u, 1024u}) {
      const Schedule schedule = make_schedule(recipe, 5);
      GeneratedSteps source(recipe, 5, window);
      std::vector<Step> steps;
      for (auto some = source.window(0); !some.empty(); some = source.window(steps.size())) {
        ASSERT_LE(some.size(), window);
        steps.insert(steps.end(), some.begin(), some.end());
      }
      EXPECT_EQ(steps, schedule.steps) << name_of(recipe.collective) << ' ' << name_of(recipe.algorithm);
    }
}

TEST(GeneratedSteps, AreWalkedAsIfTheyWereHeld) {
  for (const Recipe& recipe : recipes(17))
    for (std::uint32_t rank : {0u, 2u, 11u})
      for (std::uint32_t window : {1u, 5u, 32u}) {
        const Schedule schedule = make_schedule(recipe, rank);
        GeneratedSteps generated(recipe, rank, window);
        HeldSteps held(schedule.steps);
        EXPECT_EQ(walk(generated, schedule.shape, rank), walk(held, schedule.shape, rank))
            << name_of(recipe.collective) << ' ' << name_of(recipe.algorithm) << " rank " << rank;
      }
}

TEST(ScheduleText, RoundTripsForEveryEntryOfTheCatalogue) {
  for (std::uint32_t world : {1u, 2u, 5u, 8u, 12u})
    for (const Recipe& recipe : recipes(world))
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        const Schedule schedule = make_schedule(recipe, rank);
        const Result<Schedule> parsed = schedule_from_text(to_text(schedule));
        ASSERT_TRUE(parsed.ok()) << parsed.status().message << '\n' << to_text(schedule);
        ASSERT_EQ(*parsed, schedule) << to_text(schedule);
      }
}

// One rank of the algorithm with ranges that wrap: reviewed as text.
TEST(Circulant, ReadsAsItsStory) {
  const Recipe recipe{Collective::all_reduce, Algorithm::circulant, 5, 0, 1, {}};
  EXPECT_EQ(to_text(make_schedule(recipe, 3)),
            "gradsync schedule 1\n"
            "recipe collective=all_reduce algorithm=circulant world=5 root=0 segments=1 hosts=none\n"
            "rank 3\n"
            "shape chunks=5 input=[0..5) output=[0..5) scratch=0\n"
            "0 send 1 input[1..3)\n"
            "1 copy output[3..5)+[0..1) <- input[3..5)+[0..1)\n"
            "2 recv_reduce 0 output[3..5)\n"
            "3 send 0 output[0..1)\n"
            "4 recv_reduce 1 output[3..4)\n"
            "5 send 4 output[4..5)\n"
            "6 recv_reduce 2 output[3..4)\n"
            "7 send 2 output[3..4)\n"
            "8 recv 4 output[4..5)\n"
            "9 send 1 output[3..4)\n"
            "10 recv 0 output[0..1)\n"
            "11 send 0 output[3..5)\n"
            "12 recv 1 output[1..3)\n"
            "end\n");
}

}  // namespace
}  // namespace gradsync
