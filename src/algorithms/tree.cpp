// Tree: the binomial tree. Ranks are numbered from the root; a rank's parent is its number with the lowest set bit
// cleared, and its subtree is the ranks from itself up to where that bit would carry. Reductions go up the tree and
// broadcasts go down, cut into segments that follow each other; with one segment no broadcast takes fewer steps.
// Since a subtree is a stretch of ranks, gather and scatter pass it on as one message.
//
//   0 ┬ 4 ┬ 6 ─ 7       the reduction: 1 -> 0, 3 -> 2, 5 -> 4, 7 -> 6, then 2 -> 0, 6 -> 4, then 4 -> 0
//     │   └ 5           the broadcast: the same backwards
//     ├ 2 ─ 3
//     └ 1
//
// Eight ranks, S bytes, one segment. Broadcast: 3 steps, at most 3 S sent by a rank, S staged. Reduce: 3 steps, S
// sent by each rank, at most 2 S staged, S of scratch between root and leaves. All-reduce: 6 steps, at most 3 S sent
// by a rank, 2 S staged. Gather: 3 steps, at most 4/8 S sent by a rank, 6/8 S staged. Scatter: 3 steps, 7/8 S sent by
// the root, at most 4/8 S staged. Both hold up to 4/8 S in scratch between root and leaves. With 4 segments the
// all-reduce takes 9 steps and stages 3/4 S.
#include <algorithm>

#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"
#include "algorithms/pipeline.hpp"

namespace gradsync {
namespace {

// A rank's number counted from the root, and the size of its subtree: [number, number + size).
struct Binomial {
  std::uint32_t world, root, number, size;

  Binomial(const Recipe& recipe, std::uint32_t root_rank, std::uint32_t rank)
      : world(recipe.world),
        root(root_rank),
        number((rank + world - root) % world),
        size(number == 0 ? world : std::min(lowest_bit(number), world - number)) {}

  static std::uint32_t lowest_bit(std::uint32_t n) { return n & (~n + 1); }
  std::uint32_t rank(std::uint32_t of) const { return (root + of) % world; }
  std::uint32_t parent() const { return rank(number & (number - 1)); }
  // Children have the numbers number + 1, + 2, + 4, … within the subtree, and subtrees of that size at most.
  std::uint32_t child_size(std::uint32_t distance) const { return std::min(distance, size - distance); }
};

TreePlace place_in(const Binomial& tree) {
  TreePlace place;
  if (tree.number != 0) place.parent = tree.parent();
  for (std::uint32_t distance = 1; distance < tree.size; distance *= 2)
    place.children.push_back(tree.rank(tree.number + distance));
  place.depth = static_cast<std::uint32_t>(__builtin_popcount(tree.number));
  // The deepest number below the world has the most bits: that of world - 1, or one bit fewer and all of them ones.
  if (tree.world > 1)
    place.depth_max = std::max(static_cast<std::uint32_t>(__builtin_popcount(tree.world - 1)),
                               log2_ceil(power_of_two_floor(tree.world - 1)));
  return place;
}

void flow(const Recipe& recipe, std::uint32_t root, std::uint32_t rank, Sweeps sweeps, Emit& out) {
  const TreeFlow tree{place_in(Binomial(recipe, root, rank)), {0, recipe.segments}};
  emit_tree_flows(out, {&tree, 1}, sweeps);
}

}  // namespace

void tree_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  flow(recipe, 0, rank, {.up = true, .down = true}, out);
}

void tree_broadcast(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  flow(recipe, recipe.root, rank, {.up = false, .down = true}, out);
}

void tree_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Space work = rank == recipe.root ? Space::output : Space::scratch;
  flow(recipe, recipe.root, rank, {.up = true, .down = false, .work = work}, out);
}

// Ranks between the root and the leaves.
std::uint32_t tree_scratch(const Recipe& recipe, std::uint32_t rank) {
  const Binomial tree(recipe, recipe.root, rank);
  return tree.number != 0 && tree.size > 1 ? 1 : 0;
}

void tree_gather(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Binomial tree(recipe, recipe.root, rank);
  if (tree.size == 1 && tree.number != 0) return out.send(tree.parent(), at(Space::input, 0));
  const Space held = tree.number == 0 ? Space::output : Space::scratch;
  out.copy(at(held, rank), at(Space::input, 0));
  for (std::uint32_t distance = 1; distance < tree.size; distance *= 2) {
    const std::uint32_t child = tree.rank(tree.number + distance);
    out.recv(child, at(held, child, tree.child_size(distance)));
  }
  if (tree.number != 0) out.send(tree.parent(), at(held, rank, tree.size));
}

void tree_scatter(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Binomial tree(recipe, recipe.root, rank);
  if (tree.size == 1 && tree.number != 0) return out.recv(tree.parent(), at(Space::output, 0));
  const Space held = tree.number == 0 ? Space::input : Space::scratch;
  if (tree.number != 0) out.recv(tree.parent(), at(held, rank, tree.size));
  for (std::uint32_t distance = power_of_two_floor(tree.size); distance >= 1; distance /= 2) {
    if (distance == tree.size) continue;
    const std::uint32_t child = tree.rank(tree.number + distance);
    out.send(child, at(held, child, tree.child_size(distance)));
  }
  out.copy(at(Space::output, 0), at(held, rank));
}

}  // namespace gradsync
