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

// A moment that a wait must not outlive. There is no infinite deadline.
class Deadline {
 public:
  static Deadline at(TimePoint when) { return Deadline(when); }
  static Deadline after(Nanoseconds duration) { return Deadline(std::chrono::steady_clock::now() + duration); }

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
