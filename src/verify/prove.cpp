#include "verify/proof.hpp"

#include "base/limits.hpp"
#include "verify/domains.hpp"
#include "verify/walk.hpp"

namespace gradsync {
namespace {

struct Attempt {
  Proof proof;
  bool wants_room = false;
};

template <class Domain>
Attempt attempt(const World& world, const ProveOptions& options, Domain& domain, std::uint64_t window) {
  Walk<Domain> walk(world, options, domain, window);
  Proof proof = walk.run();
  return {std::move(proof), walk.wants_room()};
}

// Doubles the window until it suffices, then bisects: whatever runs in a window runs in a larger one.
template <class Domain>
Proof prove_over(const World& world, const ProveOptions& options, Domain domain) {
  std::uint64_t too_small = 0, window = 1;
  Attempt best = attempt(world, options, domain, window);
  while (best.wants_room) {
    too_small = window;
    best = attempt(world, options, domain, window *= 2);
  }
  if (!best.proof.ok()) return best.proof;
  while (window - too_small > 1) {
    const std::uint64_t middle = too_small + (window - too_small) / 2;
    Attempt tried = attempt(world, options, domain, middle);
    if (!tried.proof.ok()) {
      too_small = middle;
    } else {
      window = middle;
      best = std::move(tried);
    }
  }
  return best.proof;
}

bool point_to_point(Collective c) { return c == Collective::send || c == Collective::recv; }

// Steps held of each rank at a time: the whole world's must fit.
std::uint32_t window_steps_for(std::uint32_t ranks) {
  return ranks <= limits::proof_sets_ranks_max ? limits::window_steps : 2 * limits::lookahead_steps;
}

Status check_provable(const Recipe& recipe) {
  if (Status status = check(recipe); !status.ok()) return status;
  if (point_to_point(recipe.collective) && recipe.world != 2)
    return failure(ErrorCode::unsupported, "{} is proven in a world of 2, not of {}", name_of(recipe.collective),
                   recipe.world);
  return {};
}

}  // namespace

bool allows_in_place(Collective collective) {
  return collective != Collective::all_to_all && !point_to_point(collective);
}

Proof prove(const World& world, const ProveOptions& options) {
  const std::uint32_t ranks = world.size();
  if (ranks == 0) return {failure(ErrorCode::invalid_argument, "a world of no ranks"), {}};
  for (std::uint32_t r = 0; r < ranks; ++r)
    if (world.recipe(r).world != ranks)
      return {failure(ErrorCode::invalid_argument, "rank {} is of a world of {}, expected {}", r, world.recipe(r).world,
                      ranks),
              {}};
  const bool sets = options.domain == ProofDomain::sets ||
                    (options.domain == ProofDomain::automatic && ranks <= limits::proof_sets_ranks_max);
  if (!sets) return prove_over(world, options, FingerprintDomain(ranks));
  if (ranks <= 64) return prove_over(world, options, SetDomain<1>(ranks));
  if (ranks <= limits::proof_sets_ranks_max)
    return prove_over(world, options, SetDomain<limits::proof_sets_ranks_max / 64>(ranks));
  return {failure(ErrorCode::out_of_range, "sets of contributions reach {} ranks, not {}", limits::proof_sets_ranks_max,
                  ranks),
          {}};
}

Proof prove(const Recipe& recipe, const ProveOptions& options) {
  if (Status status = check_provable(recipe); !status.ok()) return {status, {}};
  return prove(RecipeWorld(recipe, window_steps_for(recipe.world)), options);
}

Proof prove(std::span<const Schedule> schedules, const ProveOptions& options) {
  return prove(HeldWorld(schedules), options);
}

Proof prove_all_aliasings(const Recipe& recipe, const ProveOptions& options) {
  ProveOptions chosen = options;
  chosen.aliasing = Aliasing::none;
  Proof apart = prove(recipe, chosen);
  if (!apart.ok() || !allows_in_place(recipe.collective)) return apart;
  chosen.aliasing = Aliasing::in_place;
  Proof in_place = prove(recipe, chosen);
  if (!in_place.ok()) {
    in_place.status.message = "in place: " + in_place.status.message;
    return in_place;
  }
  if (in_place.counts != apart.counts)
    return {failure(ErrorCode::internal, "counts in place differ from those out of place"), apart.counts};
  return apart;
}

}  // namespace gradsync
