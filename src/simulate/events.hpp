// The future of a simulation: events in the order of their time, ties in the order of their making.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/limits.hpp"

namespace gradsync {

enum class EventKind : std::uint32_t { step_done, head_at_port, landed };

struct Event {
  double time = 0;
  std::uint64_t key = 0;  // number of making (from bit 7), slot of the cursor (5 bits, for step_done), kind (2 bits)
  std::uint32_t subject = 0;  // the rank, or the channel

  EventKind kind() const { return static_cast<EventKind>(key & 3); }
  std::uint32_t slot() const { return key >> 2 & 31; }
  bool before(const Event& other) const { return time != other.time ? time < other.time : key < other.key; }
};

// A heap of four children a node: half the levels of a binary one, which is what a pop costs.
class Events {
 public:
  bool empty() const { return heap_.empty(); }
  void add(double time, EventKind kind, std::uint32_t subject, std::uint32_t slot = 0) {
    const Event event{time, made_++ << 7 | slot << 2 | static_cast<std::uint64_t>(kind), subject};
    std::size_t at = heap_.size();
    heap_.push_back(event);
    for (; at > 0 && event.before(heap_[(at - 1) / 4]); at = (at - 1) / 4) heap_[at] = heap_[(at - 1) / 4];
    heap_[at] = event;
  }
  Event next() {
    const Event first = heap_.front(), last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
    return first;
  }

 private:
  void sink(const Event& event) {
    std::size_t at = 0;
    for (;;) {
      const std::size_t child = 4 * at + 1, end = std::min(child + 4, heap_.size());
      if (child >= heap_.size()) break;
      std::size_t least = child;
      for (std::size_t i = child + 1; i < end; ++i)
        if (heap_[i].before(heap_[least])) least = i;
      if (!heap_[least].before(event)) break;
      heap_[at] = heap_[least];
      at = least;
    }
    heap_[at] = event;
  }
  std::vector<Event> heap_;
  std::uint64_t made_ = 0;
};
static_assert(limits::lookahead_steps <= 32, "a slot has five bits");

}  // namespace gradsync
