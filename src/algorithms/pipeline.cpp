// Every message of a pipelined tree has a time: segment s leaves a rank of depth d upwards at s + D - d and is received
// below a parent of depth d at s + D + d (D the depth of the tree). Every rank lists its steps by time, sends before receives,
// and a send's data came from receives of earlier times, so no rank ever waits in program order for a message that
// is listed behind one that waits for it: the flows run without deadlock with room for a single message a channel, and both
// sweeps and all trees overlap.
#include "algorithms/pipeline.hpp"

#include <algorithm>

#include "algorithms/parts.hpp"

namespace gradsync {
namespace {

class Flow {
 public:
  Flow(Emit& out, const TreeFlow& flow, Sweeps sweeps)
      : out_(out), place_(flow.place), segments_(flow.segments), sweeps_(sweeps),
        broadcast_start_(sweeps.up ? flow.place.depth_max : 0) {}

  std::uint32_t end() const { return broadcast_start_ + place_.depth_max + segments_.count; }

  void sends(std::uint32_t time) const {
    if (sweeps_.up && place_.parent)
      if (const auto range = segment(time, place_.depth_max - place_.depth)) out_.send(*place_.parent, at(up_space(), *range));
    if (sweeps_.down)
      if (const auto range = segment(time, broadcast_start_ + place_.depth))
        for (std::size_t i = place_.children.size(); i-- > 0;)  // the largest subtree first
          out_.send(place_.children[i], at(down_space(), *range));
  }
  void receives(std::uint32_t time) const {
    if (sweeps_.up && !place_.children.empty())
      if (const auto range = segment(time, place_.depth_max - place_.depth - 1)) {
        bring(out_, {Space::input, sweeps_.work}, *range);
        for (std::uint32_t child : place_.children) out_.recv_reduce(child, at(sweeps_.work, *range));
      }
    if (sweeps_.down && place_.parent)
      if (const auto range = segment(time, broadcast_start_ + place_.depth - 1))
        out_.recv(*place_.parent, at(Space::output, *range));
  }
  // The root of a broadcast, and the only rank of a world, keep their own.
  void own_copy() const {
    if (!place_.parent && (!sweeps_.up || place_.children.empty())) bring(out_, {}, segments_);
  }

 private:
  // The segment whose time it is, if the first one's is `start`.
  std::optional<Range> segment(std::uint32_t time, std::uint32_t start) const {
    if (time < start || time - start >= segments_.count) return std::nullopt;
    return Range{segments_.first + (time - start), 1};
  }
  Space up_space() const { return place_.children.empty() ? Space::input : sweeps_.work; }
  Space down_space() const { return place_.parent || sweeps_.up ? Space::output : Space::input; }

  Emit& out_;
  const TreePlace& place_;
  Range segments_;
  Sweeps sweeps_;
  std::uint32_t broadcast_start_;
};

}  // namespace

void emit_tree_flows(Emit& out, std::span<const TreeFlow> trees, Sweeps sweeps) {
  std::vector<Flow> flows;
  std::uint32_t end = 0;
  for (const TreeFlow& tree : trees) end = std::max(end, flows.emplace_back(out, tree, sweeps).end());
  for (std::uint32_t time = 0; time < end; ++time) {
    for (const Flow& flow : flows) flow.sends(time);
    for (const Flow& flow : flows) flow.receives(time);
  }
  for (const Flow& flow : flows) flow.own_copy();
}

}  // namespace gradsync
