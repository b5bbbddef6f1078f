// Every schedule generator, found by collective and algorithm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/emit.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

// One entry of the catalogue. Every pair is proven by a test that walks the catalogue.
struct CatalogueEntry {
  Collective collective;
  Algorithm algorithm;
  bool pipelines;  // Recipe::segments means something
  bool log_step;   // O(log world) steps a rank: worth proving at thousands of ranks
};
std::span<const CatalogueEntry> catalogue();
// nullptr if the collective has no such algorithm.
const CatalogueEntry* find_in_catalogue(Collective collective, Algorithm algorithm);
// "ring, circulant, direct": the algorithms that a collective has.
std::string known_algorithms_of(Collective collective);

// Whether the recipe can be generated: known pair, world in [1, limits::ranks_max], root < world, segments in
// [1, limits::segments_max], hosts empty or one entry a rank, shards empty or a weight for each part of an algorithm
// that may have uneven ones. The error names what is wrong and what is known.
Status check(const Recipe& recipe);

// How many weights such a recipe's shards may have: the ranks of two_shot, the hosts of hierarchical; 0: no shards.
std::uint32_t shards_of(const Recipe& recipe);
Status check_shards(const Recipe& recipe);

// The chunks of one rank's spaces. Requires check(recipe).ok() and rank < recipe.world.
Shape shape_of(const Recipe& recipe, std::uint32_t rank);
// Emits the rank's steps. Pure: the same recipe and rank give the same steps.
void generate(const Recipe& recipe, std::uint32_t rank, Emit& out);
// Both together, held in memory.
Schedule make_schedule(const Recipe& recipe, std::uint32_t rank);

// A rank's steps, regenerated window by window.
class GeneratedSteps final : public StepSource {
 public:
  // `recipe` is borrowed for the life of the source.
  GeneratedSteps(const Recipe& recipe, std::uint32_t rank, std::uint32_t window_steps);
  std::span<const Step> window(std::uint64_t first) override;

 private:
  const Recipe* recipe_;
  std::uint32_t rank_;
  std::uint32_t window_steps_;
  std::vector<Step> steps_;
};

}  // namespace gradsync
