// Ring: every rank talks to its two neighbours only. The message is cut into N parts; a part starts at the rank after
// its owner, goes once round and is added to at every stop until it reaches its owner, complete. Then the complete
// parts go round once more. No rank ever sends or receives more than one part at a time, so it is bandwidth-optimal
// (Patarasu and Yuan 2009), at the price of a number of steps that grows with the world.
//
//   the sum of part 0, eight ranks:    1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7 -> 0    reduce-scatter, 7 steps
//                                      0 -> 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 7    all-gather, 7 steps
//   (the other seven parts at the same time, each one rank further)
//
// Eight ranks, S bytes: 14 steps, 14/8 S sent by each rank, at most 1/8 S staged. Reduce-scatter and all-gather alone
// are half of it each; the reduce-scatter keeps its partial sums, 6/8 S, in scratch.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

Range ring_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine) {
  const std::uint32_t n = team.size(), me = team.me();
  const auto part = [&](std::uint32_t back) { return part_of(all, n, (me + 2 * n - back) % n); };
  if (n == 1) {
    if (places.from != mine.space) out.copy(mine, at(places.from, all));
    return all;
  }
  out.send(team.after(1), at(places.from, part(1)));
  for (std::uint32_t back = 2; back < n; ++back) {
    bring(out, places, part(back));
    out.recv_reduce(team.before(1), at(places.work, part(back)));
    out.send(team.after(1), at(places.work, part(back)));
  }
  if (places.from != mine.space) out.copy(mine, at(places.from, part(0)));
  out.recv_reduce(team.before(1), mine);
  return part(0);
}

void ring_all_gather(Emit& out, const Team& team, Range all) {
  const std::uint32_t n = team.size(), me = team.me();
  for (std::uint32_t k = 0; k + 1 < n; ++k) {
    out.send(team.after(1), at(Space::output, part_of(all, n, (me + n - k) % n)));
    out.recv(team.before(1), at(Space::output, part_of(all, n, (me + 2 * n - k - 1) % n)));
  }
}

void ring_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  const Range all{0, recipe.world};
  ring_reduce_scatter(out, team, all, {}, at(Space::output, rank));
  ring_all_gather(out, team, all);
}

void ring_reduce_scatter_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  ring_reduce_scatter(out, Team::world(recipe.world, rank), {0, recipe.world}, {Space::input, Space::scratch},
                      at(Space::output, 0));
}

std::uint32_t ring_reduce_scatter_scratch(const Recipe& recipe, std::uint32_t) { return recipe.world > 2 ? 1 : 0; }

void ring_all_gather_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  out.copy(at(Space::output, rank), at(Space::input, 0));
  ring_all_gather(out, Team::world(recipe.world, rank), {0, recipe.world});
}

}  // namespace gradsync
