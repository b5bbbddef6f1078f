// One shot: every rank sends its whole message to every other and adds up all N by itself, in the order of the ranks,
// so that every rank computes the very same sum. One step, for messages so small that only the number of steps
// counts.
//
//   0 1 2 3 4 5 6 7  ->  each of 0 1 2 3 4 5 6 7     (x0 + x1) + x2 + … + x7 on every rank
//
// Eight ranks, S bytes: 1 step, 7 S sent by each rank, at most 7 S staged and S of scratch from rank 2 on.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

void one_shot_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  for (std::uint32_t k = 1; k < recipe.world; ++k) out.send(team.after(k), at(Space::input, 0));
  reduce_in_order(out, team, {0, 1}, Space::input, at(Space::output, 0));
}

}  // namespace gradsync
