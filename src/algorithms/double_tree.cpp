// Double tree (Sanders, Speck and Träff 2009): in a binary tree half of the ranks are leaves, which only send on the
// way up and only receive on the way down. So two trees carry half of the message each, and a rank that is a leaf of
// one is inside the other: every link is busy in both directions and the pipeline takes about 2 S on a rank's link,
// with the depth of a tree. The first tree numbers the ranks from 1, in order: the lowest set bit of a number is its
// level, odd numbers are leaves. The second is its mirror image in even worlds, and is shifted by one rank in odd
// ones (where one rank is a leaf of both).
//
//   first tree         7          second tree   0
//             3                                         4
//         1       5                                 2       6
//       0   2   4   6                             1   3   5   7
//
// Eight ranks, S bytes, one segment: 6 steps, at most 2 S sent by a rank, S staged. With 4 segments: 9 steps, S/2
// staged.
#include <algorithm>
#include <array>

#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"
#include "algorithms/pipeline.hpp"

namespace gradsync {
namespace {

// The in-order binary tree over the numbers 1 to n: below number v with lowest set bit b are (v - b, v + b).
class InOrderTree {
 public:
  explicit InOrderTree(std::uint32_t n) : n_(n) {}

  std::uint32_t root() const { return power_of_two_floor(n_); }
  std::uint32_t depth_max() const { return log2_ceil(root()); }
  std::uint32_t parent(std::uint32_t v) const {
    const std::uint32_t b = v & (~v + 1), above = (v - b) | (2 * b);
    return above <= n_ ? above : v - b;  // the right branch of a cut tree hangs where its missing root would
  }
  std::uint32_t depth(std::uint32_t v) const {
    std::uint32_t edges = 0;
    for (; v != root(); v = parent(v)) ++edges;
    return edges;
  }
  // Calls visit(child), the left one first.
  template <class Visit>
  void children(std::uint32_t v, Visit&& visit) const {
    const std::uint32_t b = v & (~v + 1), right = std::min(b - 1, n_ - v);
    if (b > 1) visit(v - b / 2);
    if (right > 0) visit(v + power_of_two_floor(right));
  }

 private:
  std::uint32_t n_;
};

// The place of a rank, with `number_of` a rank's number in the tree and `rank_of` its inverse.
template <class NumberOf, class RankOf>
TreePlace place_in(const InOrderTree& tree, std::uint32_t rank, NumberOf&& number_of, RankOf&& rank_of) {
  TreePlace place;
  const std::uint32_t number = number_of(rank);
  if (number != tree.root()) place.parent = rank_of(tree.parent(number));
  tree.children(number, [&](std::uint32_t child) { place.children.push_back(rank_of(child)); });
  place.depth = tree.depth(number);
  place.depth_max = tree.depth_max();
  return place;
}

TreePlace first_place(std::uint32_t n, std::uint32_t rank) {
  return place_in(
      InOrderTree(n), rank, [](std::uint32_t r) { return r + 1; }, [](std::uint32_t v) { return v - 1; });
}

TreePlace second_place(std::uint32_t n, std::uint32_t rank) {
  if (n % 2 == 0)
    return place_in(
        InOrderTree(n), rank, [n](std::uint32_t r) { return n - r; }, [n](std::uint32_t v) { return n - v; });
  return place_in(
      InOrderTree(n), rank, [n](std::uint32_t r) { return (r + 1) % n + 1; },
      [n](std::uint32_t v) { return (v + n - 2) % n; });
}

}  // namespace

std::uint32_t double_tree_chunks(const Recipe& recipe) { return 2 * recipe.segments; }

void double_tree_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const std::uint32_t n = recipe.world, half = recipe.segments;
  const std::array<TreeFlow, 2> flows{TreeFlow{first_place(n, rank), {0, half}},
                                      TreeFlow{second_place(n, rank), {half, half}}};
  emit_tree_flows(out, flows, {.up = true, .down = true});
}

}  // namespace gradsync
