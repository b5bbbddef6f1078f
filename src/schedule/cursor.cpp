#include "schedule/cursor.hpp"

namespace gradsync {
namespace {

// One access of a step, in a space where equal positions are equal memory.
struct Access {
  Space space;
  std::uint32_t first, count, cycle;
};

// With in-place memory, input and output both become windows of the message.
Access place(Space space, Range range, const Shape& shape, Aliasing aliasing) {
  if (aliasing == Aliasing::none || space == Space::scratch)
    return {space, range.first, range.count, shape.cycle(space)};
  return {Space::output, shape.message_chunk(space, range.first), range.count, shape.cycle(space)};
}

// The first stretch of a cyclic range that does not wrap, and the rest, which starts the cycle anew.
struct Stretches {
  std::uint64_t first[2], end[2];
};

Stretches stretch(const Access& access, Space space, const Shape& shape, Aliasing aliasing) {
  std::uint64_t base = 0;  // where the cycle of this access begins
  if (space == Space::scratch) base = access.first / access.cycle * access.cycle;
  else if (aliasing == Aliasing::in_place) base = space == Space::input ? shape.input.first : shape.output.first;
  const std::uint64_t end = access.first + std::uint64_t{access.count}, limit = base + access.cycle;
  if (end <= limit) return {{access.first, 0}, {end, 0}};
  return {{access.first, base}, {limit, base + (end - limit)}};
}

bool overlap(Space space_a, Range a, Space space_b, Range b, const Shape& shape, Aliasing aliasing) {
  const Access x = place(space_a, a, shape, aliasing), y = place(space_b, b, shape, aliasing);
  if (x.space != y.space) return false;
  const Stretches s = stretch(x, space_a, shape, aliasing), t = stretch(y, space_b, shape, aliasing);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      if (s.first[i] < t.end[j] && t.first[j] < s.end[i]) return true;
  return false;
}

}  // namespace

bool same_channel(const Step& a, const Step& b) {
  return a.verb == b.verb && a.verb != Verb::local && a.peer == b.peer;
}

bool hazard_between(const Step& earlier, const Step& later, const Shape& shape, Aliasing aliasing) {
  const auto meets = [&](Space sa, Range a, Space sb, Range b) { return overlap(sa, a, sb, b, shape, aliasing); };
  const bool both_read = !earlier.writes() && !later.writes();
  if (!both_read && meets(earlier.space, earlier.range(), later.space, later.range())) return true;
  if (later.verb == Verb::local && earlier.writes() &&
      meets(earlier.space, earlier.range(), later.source_space, later.source_range()))
    return true;
  return earlier.verb == Verb::local && later.writes() &&
         meets(earlier.source_space, earlier.source_range(), later.space, later.range());
}

Cursor::Cursor(StepSource& source, const Shape& shape, Aliasing aliasing, std::uint32_t lookahead)
    : source_(&source),
      shape_(shape),
      aliasing_(aliasing),
      lookahead_(lookahead) {
  GRADSYNC_CHECK(lookahead >= 1 && lookahead <= limits::lookahead_steps);
  refill();
}

void Cursor::complete(Slot slot) {
  GRADSYNC_CHECK(live_ >> slot & 1u);
  live_ &= ~(Mask{1} << slot);
  for (Mask left = live_; left != 0; left &= left - 1) {  // the slot may soon hold a later step
    hazards_[next_slot(left)] &= live_;
    order_[next_slot(left)] &= live_;
  }
  while (head_ < tail_ && !(live_ >> slot_of(head_) & 1u)) ++head_;
  refill();
}

void Cursor::refill() {
  while (!exhausted_ && tail_ - head_ < lookahead_) {
    if (tail_ >= window_first_ + window_.size()) {
      window_first_ = tail_;
      window_ = source_->window(tail_);
      if (window_.empty()) exhausted_ = true;
      continue;
    }
    admit(window_[static_cast<std::size_t>(tail_ - window_first_)]);
  }
}

void Cursor::admit(const Step& step) {
  const Slot slot = slot_of(tail_);
  Mask hazards = 0, order = 0;
  for (std::uint64_t i = head_; i < tail_; ++i) {
    const Slot earlier = slot_of(i);
    if (!(live_ >> earlier & 1u)) continue;
    if (same_channel(steps_[earlier], step)) order |= Mask{1} << earlier;
    if (hazard_between(steps_[earlier], step, shape_, aliasing_)) hazards |= Mask{1} << earlier;
  }
  steps_[slot] = step;
  indexes_[slot] = tail_++;
  hazards_[slot] = hazards;
  order_[slot] = order;
  live_ |= Mask{1} << slot;
}

}  // namespace gradsync
