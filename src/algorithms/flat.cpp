// Flat: one rank does all the work. Everyone sends to the root, which adds in the order of the ranks, and the root
// sends the result to everyone. The baseline that every other algorithm must beat, and for gather and scatter of
// large blocks as good as any, since the root's link carries every byte in any case.
//
//   0 1 2 3 4 5 6 7  ->  0  ->  0 1 2 3 4 5 6 7
//
// Eight ranks, S bytes. All-reduce: 2 steps, 7 S sent by rank 0 and at most 7 S staged there. Broadcast: 1 step, 7 S
// sent by the root, at most S staged. Reduce: 1 step, at most 7 S staged by the root and S of its scratch if it is
// not rank 0 or 1. Gather: 1 step, at most 7/8 S staged by the root. Scatter: 1 step, 7/8 S sent by the root, at most
// 1/8 S staged.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

void flat_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Operand input = at(Space::input, 0), output = at(Space::output, 0);
  if (rank != 0) {
    out.send(0, input);
    out.recv(0, output);
    return;
  }
  reduce_in_order(out, Team::world(recipe.world, 0), {0, 1}, Space::input, output);
  for (std::uint32_t peer = 1; peer < recipe.world; ++peer) out.send(peer, output);
}

void flat_broadcast(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) return out.recv(recipe.root, at(Space::output, 0));
  const Team team = Team::world(recipe.world, rank);
  for (std::uint32_t k = 1; k < recipe.world; ++k) out.send(team.after(k), at(Space::input, 0));
  out.copy(at(Space::output, 0), at(Space::input, 0));
}

void flat_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) return out.send(recipe.root, at(Space::input, 0));
  reduce_in_order(out, Team::world(recipe.world, rank), {0, 1}, Space::input, at(Space::output, 0));
}

std::uint32_t flat_reduce_scratch(const Recipe& recipe, std::uint32_t rank) {
  return rank == recipe.root ? scratch_of_reduce_in_order(rank) : 0;
}

void flat_gather(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) return out.send(recipe.root, at(Space::input, 0));
  const Team team = Team::world(recipe.world, rank);
  out.copy(at(Space::output, rank), at(Space::input, 0));
  for (std::uint32_t k = 1; k < recipe.world; ++k) out.recv(team.after(k), at(Space::output, team.after(k)));
}

void flat_scatter(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  if (rank != recipe.root) return out.recv(recipe.root, at(Space::output, 0));
  const Team team = Team::world(recipe.world, rank);
  for (std::uint32_t k = 1; k < recipe.world; ++k) out.send(team.after(k), at(Space::input, team.after(k)));
  out.copy(at(Space::output, 0), at(Space::input, rank));
}

}  // namespace gradsync
