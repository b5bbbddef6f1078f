// Circulant: an all-reduce that is optimal in rounds and in bytes at once, in every world (Träff 2024, "Optimal,
// Non-pipelined Reduce-scatter and Allreduce Algorithms"). Rank q numbers the blocks from its own: R[i] is block (q +
// i) mod N. The count of blocks it still cares for is halved, rounded up, each round: s' = N, ⌈N/2⌉, …, 2, and with s
// = ⌈s'/2⌉ it sends R[s..s'-1] to rank q + s, and adds what rank q - s sent to R[0..s'-s-1]. What is left in the end
// is R[0], complete. The all-gather runs the same rounds backwards. Blocks from the last to the first are one
// message: ranges are cyclic.
//
//   eight ranks, rank 0   sends R[4 5 6 7] to 4, R[2 3] to 2, R[1] to 1       reduce-scatter
//                         receives R[1] of 1, R[2 3] of 2, R[4 5 6 7] of 4    all-gather
//   (every other rank the same, counted from itself)
//
// Eight ranks, S bytes: 6 steps, 14/8 S sent by each rank, at most 6/8 S staged. Reduce-scatter and all-gather alone
// are half of it each; the reduce-scatter keeps its partial sums, 4/8 S, in scratch.
#include <array>

#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {
namespace {

// The blocks of `all` as one member counts them, from its own.
class Blocks {
 public:
  Blocks(const Team& team, Range all, Wrap wrap)
      : all_(all),
        each_(part_of(all, team.size(), 0).count),
        team_(team),
        wrap_(wrap) {}

  // Visits R[from], …, R[to - 1] as the ranges that are one message each.
  template <class Visit>
  void visit(std::uint32_t from, std::uint32_t to, Visit&& visit) const {
    const std::uint32_t n = team_.size(), start = (team_.me() + from) % n, count = to - from;
    const std::uint32_t straight = wrap_ == Wrap::whole || start + count <= n ? count : n - start;
    visit(Range{all_.first + start * each_, straight * each_});
    if (straight < count) visit(Range{all_.first, (count - straight) * each_});
  }
  Range own() const { return {all_.first + team_.me() * each_, each_}; }

 private:
  Range all_;
  std::uint32_t each_;
  const Team& team_;
  Wrap wrap_;
};

}  // namespace

Range circulant_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine, Wrap wrap) {
  const Blocks blocks(team, all, wrap);
  const std::uint32_t n = team.size();
  if (n == 1 && places.from != mine.space) out.copy(mine, at(places.from, all));
  for (std::uint32_t now = n; now > 1;) {
    const std::uint32_t next = (now + 1) / 2;
    const bool first_round = now == n, last_round = next == 1;
    const Space held = first_round ? places.from : places.work;
    blocks.visit(next, now, [&](Range range) { out.send(team.after(next), at(held, range)); });
    if (last_round) {
      if (held != mine.space) out.copy(mine, at(held, blocks.own()));
      out.recv_reduce(team.before(next), mine);
    } else {
      if (first_round) blocks.visit(0, next, [&](Range range) { bring(out, places, range); });
      blocks.visit(0, now - next, [&](Range range) { out.recv_reduce(team.before(next), at(places.work, range)); });
    }
    now = next;
  }
  return blocks.own();
}

void circulant_all_gather(Emit& out, const Team& team, Range all, Wrap wrap) {
  const Blocks blocks(team, all, wrap);
  std::array<std::uint32_t, 34> sizes{team.size()};  // 32 halvings at most
  std::size_t rounds = 0;
  for (; sizes[rounds] > 1; ++rounds) sizes[rounds + 1] = (sizes[rounds] + 1) / 2;
  for (; rounds > 0; --rounds) {
    const std::uint32_t have = sizes[rounds], want = sizes[rounds - 1];
    blocks.visit(0, want - have, [&](Range range) { out.send(team.before(have), at(Space::output, range)); });
    blocks.visit(have, want, [&](Range range) { out.recv(team.after(have), at(Space::output, range)); });
  }
}

void circulant_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Team team = Team::world(recipe.world, rank);
  const Range all{0, recipe.world};
  circulant_reduce_scatter(out, team, all, {}, at(Space::output, rank));
  circulant_all_gather(out, team, all);
}

void circulant_reduce_scatter_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  circulant_reduce_scatter(out, Team::world(recipe.world, rank), {0, recipe.world}, {Space::input, Space::scratch},
                           at(Space::output, 0));
}

void circulant_all_gather_alone(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  out.copy(at(Space::output, rank), at(Space::input, 0));
  circulant_all_gather(out, Team::world(recipe.world, rank), {0, recipe.world});
}

}  // namespace gradsync
