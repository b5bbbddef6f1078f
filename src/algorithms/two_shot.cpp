// Two shots: every rank owns one part of the message. First each rank sends each owner its contribution and the owner
// adds them in the order of the ranks; then each owner sends its finished part to everyone. Bandwidth-optimal in two
// steps, but with 2 (N - 1) messages a rank: the algorithm of a shared-memory host.
//
//   step 1    part p of 0 1 2 3 4 5 6 7  ->  p        for every p at once
//   step 2    part p of p  ->  0 1 2 3 4 5 6 7
//
// Eight ranks, S bytes: 2 steps, 14/8 S sent by each rank, at most 7/8 S staged and 1/8 S of scratch from rank 2 on.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

void two_shot_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  const Range all{0, recipe.world};
  const Range mine = part_of(all, recipe.world, rank);
  direct_reduce_scatter(out, team, all, {}, at(Space::output, mine));
  direct_all_gather(out, team, all);
}

}  // namespace gradsync
