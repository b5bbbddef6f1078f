// Reductions up and broadcasts down one tree or several at once, segment by segment.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/emit.hpp"

namespace gradsync {

// One rank's place in a tree. `depth` counts edges from the root; `depth_max` is that of the deepest rank.
struct TreePlace {
  std::optional<std::uint32_t> parent;
  std::vector<std::uint32_t> children;  // ranks, the smallest subtree first
  std::uint32_t depth = 0;
  std::uint32_t depth_max = 0;
};

// A tree and the chunks that flow along it, one a segment.
struct TreeFlow {
  TreePlace place;
  Range segments;
};

// Which of the two sweeps take place, and where a rank with children adds up ("work"; a leaf sends its input as it is).
struct Sweeps {
  bool up = false;
  bool down = false;
  Space work = Space::output;
};

void emit_tree_flows(Emit& out, std::span<const TreeFlow> flows, Sweeps sweeps);

}  // namespace gradsync
