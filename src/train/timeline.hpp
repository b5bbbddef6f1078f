// Moments of a step, as seconds since it began.
#pragma once

#include "base/clock.hpp"
#include "gradsync/gradient_sync.hpp"

namespace gradsync {

inline TimePoint time_now() { return std::chrono::steady_clock::now(); }
inline double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

// When a finished operation ended: by its own record where it keeps one, else now.
template <class Operation>
TimePoint end_of(const Operation& work) {
  if constexpr (requires { work.completed_at(); }) {
    if (const TimePoint at = work.completed_at(); at != TimePoint{}) return at;
  }
  return time_now();
}

// Adds to `seconds` the time that a scope takes.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(&seconds), begin_(time_now()) {}
  ~Stopwatch() { *seconds_ += seconds_between(begin_, time_now()); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  TimePoint begin_;
};

}  // namespace gradsync
