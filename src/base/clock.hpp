// Time: a clock that can be replaced in tests, and the deadline that every wait has.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace gradsync {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// The longest wait there is. Whoever asks for more, up to the largest number of nanoseconds (292 years), gets this: the
// sum of a moment and a duration is always one that the clock can show.
inline constexpr Nanoseconds kWaitMax = std::chrono::hours(24 * 3652);  // ten years

// `duration` after `from`, at most kWaitMax after it.
inline TimePoint later(TimePoint from, Nanoseconds duration) {
  const Nanoseconds step = duration < kWaitMax ? duration : kWaitMax;
  const Nanoseconds start = from.time_since_epoch();
  if (step > Nanoseconds{0} && start > Nanoseconds::max() - step) return TimePoint::max();
  if (step < Nanoseconds{0} && start < Nanoseconds::min() - step) return TimePoint::min();
  return from + step;
}

// A moment that a wait must not outlive. There is no infinite deadline.
class Deadline {
 public:
  static Deadline at(TimePoint when) { return Deadline(when); }
  static Deadline after(Nanoseconds duration) { return Deadline(later(std::chrono::steady_clock::now(), duration)); }

  TimePoint when() const { return when_; }
  bool passed(TimePoint now) const { return now >= when_; }
  bool passed() const { return passed(std::chrono::steady_clock::now()); }

  // What is left, rounded up to whole milliseconds: the timeout of poll and epoll_wait. 0 once passed.
  int poll_milliseconds(TimePoint now) const {
    if (passed(now)) return 0;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when_ - now).count();
    return static_cast<int>(left < std::numeric_limits<int>::max() ? left : std::numeric_limits<int>::max());
  }
  int poll_milliseconds() const { return poll_milliseconds(std::chrono::steady_clock::now()); }

  friend bool operator<(const Deadline& a, const Deadline& b) { return a.when_ < b.when_; }

 private:
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when_;
};

inline Deadline earlier(Deadline a, Deadline b) { return a < b ? a : b; }

}  // namespace gradsync
