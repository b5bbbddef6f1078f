// Halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005): a reduce-scatter by halving, an
// all-gather by doubling. In round k a rank and the one whose number differs in bit k split the range that they
// share: each sends the half that it gives up and adds what it gets to the half that it keeps. The nearest rank comes
// first, while the halves are large. Then the same exchanges backwards give everything to everyone. Other worlds
// fold: with P the largest power of two <= N and r = N - P, the first 2r ranks form pairs that exchange halves, both
// add, and the odd one hands its half to the even one, sits out, and gets the whole result at the end.
//
//   rank       0     1     2     3     4     5     6     7       the eight chunks that it keeps
//   round 0   0123  4567  0123  4567  0123  4567  0123  4567     exchange with rank ^ 1
//   round 1   01    45    23    67    01    45    23    67       exchange with rank ^ 2
//   round 2   0     4     2     6     1     5     3     7        exchange with rank ^ 4
//
// Eight ranks, S bytes: 6 steps, 14/8 S sent by each rank, at most 6/8 S staged.
#include <array>

#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {
namespace {

struct Halves {
  Range kept, given;
};

// Which half of a range a rank keeps: the lower one if the bit of this round is clear.
Halves halve(Range range, bool upper) {
  const Range low = part_of(range, 2, 0), high = part_of(range, 2, 1);
  return upper ? Halves{high, low} : Halves{low, high};
}

// The folded ranks' first exchange; true if this rank sits out until the result comes.
bool fold(Emit& out, std::uint32_t rank, Range all) {
  const bool odd = rank % 2 == 1;
  const std::uint32_t other = odd ? rank - 1 : rank + 1;
  const Halves halves = halve(all, odd);
  out.send(other, at(Space::input, halves.given));
  bring(out, {}, halves.kept);
  out.recv_reduce(other, at(Space::output, halves.kept));
  if (odd) out.send(other, at(Space::output, halves.kept));
  else out.recv(other, at(Space::output, halves.given));
  return odd;
}

// All rounds among the `power` ranks that take part; `peer_of` tells the rank of a participant's number.
template <class PeerOf>
void exchange(Emit& out, std::uint32_t me, std::uint32_t power, Range range, Space from, PeerOf&& peer_of) {
  std::array<Halves, 32> rounds;
  std::size_t round = 0;
  for (std::uint32_t distance = 1; distance < power; distance *= 2, ++round) {
    const Halves halves = rounds[round] = halve(range, (me & distance) != 0);
    const std::uint32_t peer = peer_of(me ^ distance);
    out.send(peer, at(from, halves.given));
    bring(out, {from, Space::output}, halves.kept);
    out.recv_reduce(peer, at(Space::output, halves.kept));
    range = halves.kept;
    from = Space::output;
  }
  for (std::uint32_t distance = power / 2; distance >= 1; distance /= 2) {
    const Halves halves = rounds[--round];
    const std::uint32_t peer = peer_of(me ^ distance);
    out.send(peer, at(Space::output, halves.kept));
    out.recv(peer, at(Space::output, halves.given));
  }
}

}  // namespace

std::uint32_t halving_doubling_chunks(const Recipe& recipe) { return power_of_two_floor(recipe.world); }

void halving_doubling_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const std::uint32_t power = power_of_two_floor(recipe.world), folded = recipe.world - power;
  const Range all{0, power};
  if (recipe.world == 1) return bring(out, {}, all);
  const bool in_fold = rank < 2 * folded;
  if (in_fold && fold(out, rank, all)) return out.recv(rank - 1, at(Space::output, all));
  const auto peer_of = [&](std::uint32_t number) { return number < folded ? 2 * number : number + folded; };
  exchange(out, in_fold ? rank / 2 : rank - folded, power, all, in_fold ? Space::output : Space::input, peer_of);
  if (in_fold) out.send(rank + 1, at(Space::output, all));
}

}  // namespace gradsync
