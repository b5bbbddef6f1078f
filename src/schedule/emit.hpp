// Where a generator writes its steps: keeps the steps [first, first + limit) of the sequence and counts the rest.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/step.hpp"

namespace gradsync {

// Operand of a step: a range of one space.
struct Operand {
  Space space = Space::output;
  Range range;
};

class Emit {
 public:
  explicit Emit(std::vector<Step>& out, std::uint64_t first = 0,
                std::uint64_t limit = std::numeric_limits<std::uint64_t>::max())
      : out_(out),
        first_(first),
        limit_(limit) {}

  // Empty ranges are dropped here, on both sides alike, so that authors need not ask.
  void send(std::uint32_t peer, Operand from) { add(Verb::send, Mode::assign, peer, from, {from.space, {}}); }
  void recv(std::uint32_t peer, Operand into) { add(Verb::recv, Mode::assign, peer, into, {into.space, {}}); }
  void recv_reduce(std::uint32_t peer, Operand into) { add(Verb::recv, Mode::combine, peer, into, {into.space, {}}); }
  void copy(Operand into, Operand from) { add(Verb::local, Mode::assign, 0, into, from); }
  void reduce(Operand into, Operand from) { add(Verb::local, Mode::combine, 0, into, from); }

  std::uint64_t emitted() const { return emitted_; }  // steps so far, kept or not

 private:
  void add(Verb verb, Mode mode, std::uint32_t peer, Operand target, Operand source) {
    if (target.range.count == 0) return;
    if (emitted_ >= first_ && emitted_ - first_ < limit_)
      out_.push_back(Step{target.range.first, target.range.count, source.range.first, peer, verb, mode, target.space,
                          source.space});
    ++emitted_;
  }
  std::vector<Step>& out_;
  std::uint64_t first_, limit_;
  std::uint64_t emitted_ = 0;
};

}  // namespace gradsync
