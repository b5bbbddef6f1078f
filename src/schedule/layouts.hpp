// The element counts of one rank's spaces, for a collective called with a count.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

namespace gradsync {

// Whether the message is one block a rank, so that `count` is said of a block.
constexpr bool has_blocks(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather ||
         collective == Collective::gather || collective == Collective::scatter || collective == Collective::all_to_all;
}
constexpr bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

// The layout of the whole message: `count` elements in all, or in each block where the collective has blocks.
inline Layout layout_for(const Recipe& recipe, const Shape& shape, std::uint64_t count) {
  if (!recipe.shards.empty()) {
    const std::uint32_t each = shape.chunks / static_cast<std::uint32_t>(recipe.shards.size());
    // The chunks of a part lie together; hierarchical has a block of every host in each stretch that its owners share.
    return recipe.algorithm == Algorithm::hierarchical ? Layout::weighted(count, recipe.shards, each)
                                                       : Layout::weighted(count, recipe.shards, 1, each);
  }
  if (!has_blocks(recipe.collective)) return Layout::even(count, shape.chunks);
  return Layout::equal_blocks(count, recipe.world, shape.chunks / recipe.world);
}
// The same with a given count for each rank's block; only where the collective has blocks.
inline Layout layout_for(const Recipe& recipe, const Shape& shape, std::span<const std::uint64_t> block_counts) {
  return Layout::given_blocks(block_counts, shape.chunks / recipe.world);
}

// The layout that each space of a rank is read with, by Space. They differ only in an uneven all-to-all, where the
// input is cut by what the rank sends to each rank and the output by what it receives from each.
struct Layouts {
  std::array<Layout, 3> spaces;
  Layouts() = default;
  explicit Layouts(const Layout& all) : spaces{all, all, all} {}
  Layouts(const Layout& input, const Layout& output) : spaces{input, output, output} {}
  const Layout& of(Space space) const { return spaces[static_cast<std::size_t>(space)]; }
};

// The layouts of each rank.
using LayoutsOf = std::function<Layouts(const Recipe&, const Shape&, std::uint32_t rank)>;
// One element a chunk.
inline Layouts one_element_a_chunk(const Recipe&, const Shape& shape, std::uint32_t) {
  return Layouts(Layout::even(shape.chunks, shape.chunks == 0 ? 1 : shape.chunks));
}
// Those of a call with `count` elements (of the message, or of a block).
inline LayoutsOf layouts_of_count(std::uint64_t count) {
  return [count](const Recipe& recipe, const Shape& shape, std::uint32_t) {
    return Layouts(layout_for(recipe, shape, count));
  };
}

// Visits the stretches (at most two) of a cyclic range of a space that has it: Visit(first chunk of the space, count).
template <class Visit>
void for_each_stretch(const Shape& shape, Space space, Range range, Visit&& visit) {
  const std::uint32_t length = shape.cycle(space), base = range.first / length * length;
  const std::uint32_t room = base + length - range.first;
  if (range.count <= room) return visit(range.first, range.count);
  visit(range.first, room);
  visit(base, range.count - room);
}

// Elements of a range that lies in its space.
inline std::uint64_t elements_of(const Shape& shape, const Layouts& layouts, Space space, Range range) {
  const Layout& layout = layouts.of(space);
  std::uint64_t elements = 0;
  for_each_stretch(shape, space, range, [&](std::uint32_t first, std::uint32_t count) {
    const std::uint32_t chunk = shape.message_chunk(space, first);
    elements += layout.offset(chunk + count) - layout.offset(chunk);
  });
  return elements;
}

}  // namespace gradsync
