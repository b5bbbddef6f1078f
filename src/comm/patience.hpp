// How a waiting thread spends its time: it spins for a moment, then gives way, then sleeps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"
#include "base/limits.hpp"

namespace gradsync {

// What a group has learnt about long waits, those for a long stretch of bytes from a network: whether a spin sees its end.
// It does where the network is quicker than a thread wakes, as within a host; elsewhere spinning takes a core that could
// compute. Forgets nothing and needs no clock: a spin that pays is found out by trying one wait in sixteen.
class LongWaits {
 public:
  bool spin_next() { return credit_ > 0 || ++skipped_ % kWaitsPerTrial == 0; }
  void spun(bool paid) { credit_ = paid ? std::min(credit_ + 1, kCreditMax) : std::max(credit_ - 1, 0); }

 private:
  static constexpr std::uint32_t kWaitsPerTrial = 16;
  static constexpr int kCreditMax = 2;
  int credit_ = kCreditMax;
  std::uint32_t skipped_ = 0;
};

// For the waits of one thread. The spin is bounded in time, since one look at a stream may cost anything from 20 ns (shared
// memory) to a system call.
class Patience {
 public:
  enum class Rest { spin, yield, sleep };

  // `cores_to_spare`: no more ranks here than cores, so that whoever is waited for is running.
  Patience(bool cores_to_spare, LongWaits& long_waits)
      : long_waits_(long_waits),
        cores_to_spare_(cores_to_spare),
        spin_(cores_to_spare ? limits::spin_before_yield : limits::spin_before_yield_crowded) {}

  void something_moved() {
    if (judged_) long_waits_.spun(paid());
    judged_ = slept_ = false;
    looks_ = yields_ = 0;
  }
  // No look has been idle since something moved.
  bool fresh() const { return looks_ == 0 && yields_ == 0; }
  // Before the first idle look of a long wait.
  void expect_long_wait() {
    judged_ = long_waits_.spin_next();
    if (!judged_) yields_ = limits::yields_before_sleep;
  }

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

  Rest give_way() {
    if (++yields_ <= limits::yields_before_sleep) return Rest::yield;
    slept_ = true;
    return Rest::sleep;
  }
  // Giving way to ranks that have work is no loss.
  bool paid() const { return !slept_ && !(cores_to_spare_ && yields_ > 0); }

  LongWaits& long_waits_;
  bool cores_to_spare_;
  Nanoseconds spin_;
  TimePoint began_;
  std::uint32_t looks_ = 0, yields_ = 0;
  bool judged_ = false, slept_ = false;
};

}  // namespace gradsync
