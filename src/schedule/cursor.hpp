// The one piece of code that knows which step may run next. The executor, the verifier and the simulator all walk it.
//
// As-if sequential: the meaning of a rank's steps is their in-order execution. The cursor keeps up to `lookahead` live
// steps and, for each, the set of earlier live steps it must wait for: those that touch the same chunks (one of the two
// writing) and those of the same verb on the same peer, since messages of a pair are matched in order. Work a step is
// bounded by the lookahead, which is a constant. With a lookahead of 1 the walk is strictly in order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/limits.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

// Whether the caller's input memory is the output memory at its in-place position (see Shape: equal message chunks
// are equal memory).
enum class Aliasing : std::uint8_t { none, in_place };

// Whether running `later` before `earlier` has finished could change what either reads or leaves.
bool hazard_between(const Step& earlier, const Step& later, const Shape& shape, Aliasing aliasing);
// Whether both are sends to one peer, or both receives from one.
bool same_channel(const Step& a, const Step& b);

class Cursor {
 public:
  using Slot = std::uint32_t;
  using Mask = std::uint32_t;

  // `source` is borrowed for the life of the cursor; 1 <= lookahead <= limits::lookahead_steps.
  Cursor(StepSource& source, const Shape& shape, Aliasing aliasing, std::uint32_t lookahead = limits::lookahead_steps);

  bool finished() const { return head_ == tail_; }

  // The live steps that are not done, as a mask of slots; iterate with `next_slot`.
  Mask live() const { return live_; }
  static Slot next_slot(Mask mask) { return static_cast<Slot>(std::countr_zero(mask)); }
  // The live slots oldest first: rotate so that program order is kept.
  template <class Visit>  // Visit(Slot) -> bool, false stops
  void for_each_live(Visit&& visit) const {
    for (std::uint64_t i = head_; i < tail_; ++i) {
      if (i < head_) continue;  // the visitor completed it
      const Slot slot = slot_of(i);
      if ((live_ >> slot & 1u) && !visit(slot)) return;
    }
  }

  const Step& step(Slot slot) const { return steps_[slot]; }
  std::uint64_t index(Slot slot) const { return indexes_[slot]; }  // the step's number in the schedule
  // Earlier unfinished steps that touch the same chunks. A byte-wise executor may follow them at a distance.
  Mask hazards(Slot slot) const { return hazards_[slot]; }
  // Earlier unfinished steps of the same channel. These must be finished first.
  Mask channel_order(Slot slot) const { return order_[slot]; }
  // Whether the step may run as a whole now.
  bool ready(Slot slot) const { return (hazards_[slot] | order_[slot]) == 0; }

  // Whether the step of that number has taken effect.
  bool is_done(std::uint64_t index) const {
    return index < head_ || (index < tail_ && !(live_ >> slot_of(index) & 1u));
  }
  // Whether the step of that number is within the lookahead and has not taken effect.
  bool is_live(std::uint64_t index) const { return index >= head_ && index < tail_ && (live_ >> slot_of(index) & 1u); }
  // The step has taken effect. Makes room for later ones; `step` and `index` of other live slots stay.
  void complete(Slot slot);

 private:
  Slot slot_of(std::uint64_t index) const { return static_cast<Slot>(index % limits::lookahead_steps); }
  void refill();
  void admit(const Step& step);

  StepSource* source_;
  Shape shape_;
  Aliasing aliasing_;
  std::uint32_t lookahead_;
  std::span<const Step> window_;
  std::uint64_t window_first_ = 0;  // number of the window's first step
  bool exhausted_ = false;
  std::uint64_t head_ = 0, tail_ = 0;  // [head, tail): live or done behind a live one
  Mask live_ = 0;
  std::array<Step, limits::lookahead_steps> steps_;
  std::array<std::uint64_t, limits::lookahead_steps> indexes_;
  std::array<Mask, limits::lookahead_steps> hazards_;
  std::array<Mask, limits::lookahead_steps> order_;
};

}  // namespace gradsync
