// How a waiting thread spends its time: it spins for a moment, then gives way, then sleeps.
#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/limits.hpp"

namespace gradsync {

// For one wait of one thread. The spin is bounded in time, since one look at a stream may cost anything from 20 ns (shared
// memory) to a system call.
class Patience {
 public:
  enum class Rest { spin, yield, sleep };

  // `cores_to_spare`: no more ranks here than cores, so that whoever is waited for is running.
  explicit Patience(bool cores_to_spare)
      : spin_(cores_to_spare ? limits::spin_before_yield : limits::spin_before_yield_crowded) {}

  void something_moved() { looks_ = yields_ = 0; }

  // What to do after one more look at which nothing had moved.
  Rest after_idle_look() {
    if (yields_ > 0 || spin_ == Nanoseconds{0}) return give_way();
    if (looks_++ % kLooksPerClock != 0) return Rest::spin;
    const TimePoint now = std::chrono::steady_clock::now();
    if (looks_ == 1) {
      began_ = now;
      return Rest::spin;
    }
    if (now - began_ >= spin_) return give_way();
    // Whoever is waited for may have been put on this very core: give way now and then while spinning.
    return now - began_ >= limits::spin_alone ? Rest::yield : Rest::spin;
  }

 private:
  static constexpr std::uint32_t kLooksPerClock = 16;

  Rest give_way() { return ++yields_ <= limits::yields_before_sleep ? Rest::yield : Rest::sleep; }

  Nanoseconds spin_;
  TimePoint began_;
  std::uint32_t looks_ = 0, yields_ = 0;
};

}  // namespace gradsync
