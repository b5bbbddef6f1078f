// The verifier must object to every mutation that changes the meaning. Whether one does is found without the verifier,
// by running the mutated world on random numbers: it changes the meaning if ranks block, messages are left, sizes do
// not match, or some rank's output is not what the collective promises, to the bit.
#include "verify/mutate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "algorithms/catalogue.hpp"
#include "verify/interpreter_for_test.hpp"
#include "verify/proof.hpp"

namespace gradsync {
namespace {

Recipe recipe_of(const CatalogueEntry& entry, std::uint32_t world) {
  Recipe recipe{entry.collective, entry.algorithm, world, world / 2, entry.pipelines ? 2u : 1u, {}};
  if (entry.algorithm == Algorithm::hierarchical)
    for (std::uint32_t r = 0; r < world; ++r) recipe.hosts.push_back(r / 3);
  return recipe;
}

// The interpreter's element counts, for the verifier.
Layouts test_layouts(const Recipe& recipe, const Shape& shape, std::uint32_t rank) {
  std::vector<std::uint64_t> sizes;
  if (recipe.collective != Collective::all_to_all) {
    for (std::uint32_t m = 0; m < shape.chunks; ++m) sizes.push_back(interpreter::chunk_elements(m));
    return Layouts(Layout::given_blocks(sizes));
  }
  std::vector<std::uint64_t> received;
  for (std::uint32_t other = 0; other < recipe.world; ++other) {
    sizes.push_back(interpreter::pair_elements(rank, other));
    received.push_back(interpreter::pair_elements(other, rank));
  }
  return Layouts(Layout::given_blocks(sizes), Layout::given_blocks(received));
}

struct Tally {
  std::array<std::uint64_t, kMutationKindCount> changed{}, unchanged{};
  std::uint64_t accepted = 0;                     // of the unchanged
  std::map<std::string, std::uint64_t> stricter;  // why the verifier rejected the others
  std::uint64_t changed_total() const {
    std::uint64_t total = 0;
    for (std::uint64_t n : changed) total += n;
    return total;
  }
};

// Rules that the verifier holds schedules to although these inputs do not show the damage: a value that nobody uses may
// be read before it is set, or be combined twice; and sums may be equal in bits by luck.
std::string stricter_reason(const std::string& message) {
  for (const char* reason :
       {"which nobody has written", "starts at chunk", "different chunks of the message", "combines", "another order"})
    if (message.find(reason) != std::string::npos) return reason;
  return {};
}

void try_one(const std::vector<Schedule>& world, const Mutation& mutation, Aliasing aliasing, std::uint64_t seed,
             Tally& tally) {
  ProveOptions options;
  options.aliasing = aliasing;
  options.layouts = test_layouts;
  const Proof proof = prove(world, options);
  options.domain = ProofDomain::fingerprints;
  const Proof by_fingerprints = prove(world, options);
  interpreter::Run run(world, aliasing == Aliasing::in_place, seed);
  const std::string fault = run.fault();
  const auto kind = static_cast<std::size_t>(mutation.kind);
  if (!fault.empty()) {
    ++tally.changed[kind];
    EXPECT_FALSE(by_fingerprints.ok()) << mutation.text << ": " << fault << " (seed " << seed << ")";
    EXPECT_FALSE(proof.ok()) << name_of(world[0].recipe.collective) << ' ' << name_of(world[0].recipe.algorithm)
                             << " of " << world.size() << ", " << mutation.text << ": " << fault << " (seed " << seed
                             << ")";
    return;
  }
  ++tally.unchanged[kind];
  if (proof.ok()) return void(++tally.accepted);
  const std::string reason = stricter_reason(proof.status.message);
  EXPECT_FALSE(reason.empty()) << "rejected without a reason known: " << proof.status.message << "; " << mutation.text;
  ++tally.stricter[reason];
}

void mutate_one(const CatalogueEntry& entry, std::uint32_t ranks, MutationKind kind, Random& random, Tally& tally) {
  const std::vector<Schedule> sound = hold(RecipeWorld(recipe_of(entry, ranks)));
  const Aliasing aliasing =
      allows_in_place(entry.collective) && random.below(2) == 0 ? Aliasing::in_place : Aliasing::none;
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::vector<Schedule> world = sound;
    if (const auto mutation = mutate(world, kind, random))
      return try_one(world, *mutation, aliasing, random.next(), tally);
  }
}

bool takes_part(const CatalogueEntry& entry, std::uint32_t ranks) {
  return ranks == 2 || (entry.collective != Collective::send && entry.collective != Collective::recv);
}

TEST(Mutations, ThatChangeTheMeaningAreAllRejected) {
  constexpr std::uint64_t kSeed = 20240229;
  Random random(kSeed);
  Tally tally;
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t ranks = 2; ranks <= 9; ++ranks)
      for (std::size_t kind = 0; kind < 4 * kMutationKindCount; ++kind)
        if (takes_part(entry, ranks))
          mutate_one(entry, ranks, static_cast<MutationKind>(kind % kMutationKindCount), random, tally);
  for (std::size_t kind = 0; kind < kMutationKindCount; ++kind) {
    std::printf("%-10s %4lu change the meaning, %4lu do not\n",
                std::string(name_of(static_cast<MutationKind>(kind))).c_str(),
                static_cast<unsigned long>(tally.changed[kind]), static_cast<unsigned long>(tally.unchanged[kind]));
    EXPECT_GT(tally.changed[kind], 50u) << name_of(static_cast<MutationKind>(kind));
  }
  std::printf("of those that do not, %lu are accepted", static_cast<unsigned long>(tally.accepted));
  for (const auto& [reason, count] : tally.stricter)
    std::printf(", %lu rejected (\"%s\")", static_cast<unsigned long>(count), reason.c_str());
  std::printf("\n");
  EXPECT_GE(tally.changed_total(), 1000u);
  EXPECT_GT(tally.accepted, 0u);
}

TEST(Interpreter, AgreesWithTheCatalogue) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t ranks = 1; ranks <= 9; ++ranks) {
      if (!takes_part(entry, ranks)) continue;
      const std::vector<Schedule> world = hold(RecipeWorld(recipe_of(entry, ranks)));
      for (bool in_place : {false, true}) {
        if (in_place && !allows_in_place(entry.collective)) continue;
        EXPECT_EQ(interpreter::Run(world, in_place, ranks).fault(), "")
            << name_of(entry.collective) << ' ' << name_of(entry.algorithm) << " of " << ranks;
      }
    }
}

}  // namespace
}  // namespace gradsync
