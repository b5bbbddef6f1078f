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

namespace {

// One segment of every part: a message of its own.
struct Segment {
  const Recipe* recipe;
  Team team;
  std::uint32_t number;

  Range of(std::uint32_t owner) const { return {owner * recipe->segments + number, 1}; }

  void reduce_scatter(Emit& out) const {
    for (std::uint32_t k = 1; k < team.size(); ++k)
      out.send(team.after(k), at(Space::input, of((team.me() + k) % team.size())));
    reduce_in_order(out, team, of(team.me()), Space::input, at(Space::output, of(team.me())));
  }
  void all_gather(Emit& out) const {
    for (std::uint32_t k = 1; k < team.size(); ++k) out.send(team.after(k), at(Space::output, of(team.me())));
    for (std::uint32_t k = 1; k < team.size(); ++k)
      out.recv(team.before(k), at(Space::output, of((team.me() + team.size() - k) % team.size())));
  }
};

}  // namespace

std::uint32_t two_shot_chunks(const Recipe& recipe) { return recipe.world * recipe.segments; }

// A segment is handed out after the next one was sent to its owners: so nobody waits for the sums of what he has just
// sent.
void two_shot_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  for (std::uint32_t s = 0; s < recipe.segments; ++s) {
    Segment{&recipe, team, s}.reduce_scatter(out);
    if (s > 0) Segment{&recipe, team, s - 1}.all_gather(out);
  }
  Segment{&recipe, team, recipe.segments - 1}.all_gather(out);
}

}  // namespace gradsync
