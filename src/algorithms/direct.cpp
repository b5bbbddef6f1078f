// Direct: every rank talks to every other at once, one message each way. The fewest steps and the fewest bytes, but N
// - 1 messages a rank: for few ranks that all see each other at the same speed, as inside a host. Peers are visited
// in an order that starts at one's own successor, so that no rank is everyone's first target.
//
//   rank 2 of 8 sends to   3 4 5 6 7 0 1       rank 5 sends to   6 7 0 1 2 3 4
//
// Eight ranks, S bytes in all, 7/8 S sent by each rank. Reduce-scatter: 1 step, at most 7/8 S staged and 1/8 S of
// scratch from rank 2 on; the owner adds in the order of the ranks. All-gather: 1 step, at most 7/8 S staged.
// All-to-all: pairwise, a send and a receive at a time, 7 steps that do not depend on one another, at most 2/8 S
// staged.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

void reduce_in_order(Emit& out, const Team& team, Range range, Space from, Operand into) {
  const std::uint32_t me = team.me();
  if (from != into.space) out.copy(into, at(from, range));
  // One contribution before this one: a + b is b + a. With more, their sum is needed first.
  if (me == 1) out.recv_reduce(team.rank(0), into);
  if (me >= 2) {
    const Operand before = at(Space::scratch, range);
    out.recv(team.rank(0), before);
    for (std::uint32_t i = 1; i < me; ++i) out.recv_reduce(team.rank(i), before);
    out.reduce(into, before);
  }
  for (std::uint32_t i = me + 1; i < team.size(); ++i) out.recv_reduce(team.rank(i), into);
}

Range direct_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine) {
  const std::uint32_t n = team.size(), me = team.me();
  for (std::uint32_t k = 1; k < n; ++k) out.send(team.after(k), at(places.from, part_of(all, n, (me + k) % n)));
  const Range own = part_of(all, n, me);
  reduce_in_order(out, team, own, places.from, mine);
  return own;
}

void direct_all_gather(Emit& out, const Team& team, Range all) {
  const std::uint32_t n = team.size(), me = team.me();
  for (std::uint32_t k = 1; k < n; ++k) out.send(team.after(k), at(Space::output, part_of(all, n, me)));
  for (std::uint32_t k = 1; k < n; ++k) out.recv(team.before(k), at(Space::output, part_of(all, n, (me + n - k) % n)));
}

void direct_reduce_scatter_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  direct_reduce_scatter(out, Team::world(recipe.world, rank), {0, recipe.world}, {Space::input, Space::scratch},
                        at(Space::output, 0));
}

void direct_all_gather_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  out.copy(at(Space::output, rank), at(Space::input, 0));
  direct_all_gather(out, Team::world(recipe.world, rank), {0, recipe.world});
}

void direct_all_to_all(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  out.copy(at(Space::output, rank), at(Space::input, rank));
  for (std::uint32_t k = 1; k < recipe.world; ++k) {
    out.send(team.after(k), at(Space::input, team.after(k)));
    out.recv(team.before(k), at(Space::output, team.before(k)));
  }
}

void direct_send(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) out.send(recipe.root, at(Space::input, 0));
}

void direct_recv(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) out.recv(recipe.root, at(Space::output, 0));
}

}  // namespace gradsync
