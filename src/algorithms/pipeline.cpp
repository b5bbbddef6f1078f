// Every message of a pipelined tree has a time: segment s leaves a rank of depth d upwards at s + D - d, and
// downwards for its children at s + D + d (D the depth of the tree; without a sweep up, s + d). A second message of
// one time from a rank to another, of another tree or sweep, comes after all that are the first of their pair. Every
// rank lists its steps in this order, sends before receives, and a send's data came from receives of earlier times.
// So among all messages the first that is not through yet has both its ends ready: the flows run without deadlock in
// program order with room for a single message a channel, and both sweeps and all trees overlap.
#include "algorithms/pipeline.hpp"

#include <algorithm>

#include "algorithms/parts.hpp"

namespace gradsync {
namespace {

// One end of a message.
struct End {
  bool send;
  Mode mode;  // of a receive
  std::uint32_t peer;
  Operand operand;
  std::uint32_t turn = 0;  // how many of its pair and time go before it
};

// The message ends of one rank and one time, in the order of trees and sweeps.
class Moment {
 public:
  void add(End end) {
    for (const End& other : ends_) end.turn += other.send == end.send && other.peer == end.peer;
    turns_ = std::max(turns_, end.turn + 1);
    ends_.push_back(end);
  }
  void emit_and_clear(Emit& out) {
    for (std::uint32_t turn = 0; turn < turns_; ++turn) {
      for (const End& end : ends_)
        if (end.turn == turn && end.send) out.send(end.peer, end.operand);
      for (const End& end : ends_)
        if (end.turn == turn && !end.send) receive(out, end);
    }
    ends_.clear();
    turns_ = 0;
  }

 private:
  static void receive(Emit& out, const End& end) {
    if (end.mode == Mode::combine) out.recv_reduce(end.peer, end.operand);
    else out.recv(end.peer, end.operand);
  }
  std::vector<End> ends_;
  std::uint32_t turns_ = 0;
};

class Flow {
 public:
  Flow(Emit& out, const TreeFlow& flow, Sweeps sweeps)
      : out_(out),
        place_(flow.place),
        segments_(flow.segments),
        sweeps_(sweeps),
        broadcast_start_(sweeps.up ? flow.place.depth_max : 0) {}

  std::uint32_t end() const { return broadcast_start_ + place_.depth_max + segments_.count; }

  void up(std::uint32_t time, Moment& moment) const {
    if (!sweeps_.up) return;
    if (place_.parent)
      if (const auto range = segment(time, place_.depth_max - place_.depth))
        moment.add({true, Mode::assign, *place_.parent, at(up_space(), *range)});
    if (place_.children.empty()) return;
    if (const auto range = segment(time, place_.depth_max - place_.depth - 1)) {
      bring(out_, {Space::input, sweeps_.work}, *range);
      for (std::uint32_t child : place_.children) moment.add({false, Mode::combine, child, at(sweeps_.work, *range)});
    }
  }
  void down(std::uint32_t time, Moment& moment) const {
    if (!sweeps_.down) return;
    if (const auto range = segment(time, broadcast_start_ + place_.depth))
      for (std::size_t i = place_.children.size(); i-- > 0;)  // the largest subtree first
        moment.add({true, Mode::assign, place_.children[i], at(down_space(), *range)});
    if (!place_.parent) return;
    if (const auto range = segment(time, broadcast_start_ + place_.depth - 1))
      moment.add({false, Mode::assign, *place_.parent, at(Space::output, *range)});
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
  Moment moment;
  for (std::uint32_t time = 0; time < end; ++time) {
    for (const Flow& flow : flows) {
      flow.up(time, moment);
      flow.down(time, moment);
    }
    moment.emit_and_clear(out);
  }
  for (const Flow& flow : flows) flow.own_copy();
}

}  // namespace gradsync
