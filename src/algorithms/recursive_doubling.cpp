// Recursive doubling: in round k every rank exchanges all it has with the rank whose number differs in bit k, and
// both add. After log2 N rounds everyone has everything. It takes the fewest steps that an all-reduce can, but sends
// the whole message every round: for small messages. Both of a pair add the same two values, so replicas are equal in
// bits. Other worlds fold: with P the largest power of two <= N and r = N - P, the odd ones of the first 2r ranks
// hand their message to the even one before them, sit out, and get the result at the end.
//
//   rank      0 1 2 3 4 5 6 7
//   round 0   0=1 2=3 4=5 6=7
//   round 1   0=2 1=3 4=6 5=7
//   round 2   0=4 1=5 2=6 3=7
//
// Eight ranks, S bytes: 3 steps, 3 S sent by each rank, at most 2 S staged (partners of two rounds that are ahead).
//
// The barrier is this with nothing in the message.
#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {

void recursive_doubling_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const std::uint32_t power = power_of_two_floor(recipe.world), folded = recipe.world - power;
  const Operand all = at(Space::output, 0), input = at(Space::input, 0);
  const bool in_fold = rank < 2 * folded;
  if (in_fold && rank % 2 == 1) {
    out.send(rank - 1, input);
    out.recv(rank - 1, all);
    return;
  }
  out.copy(all, input);
  if (in_fold) out.recv_reduce(rank + 1, all);
  const std::uint32_t me = in_fold ? rank / 2 : rank - folded;
  for (std::uint32_t distance = 1; distance < power; distance *= 2) {
    const std::uint32_t other = me ^ distance, peer = other < folded ? 2 * other : other + folded;
    out.send(peer, all);
    out.recv_reduce(peer, all);
  }
  if (in_fold) out.send(rank + 1, all);
}

}  // namespace gradsync
