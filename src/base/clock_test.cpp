#include "base/clock.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

using namespace std::chrono_literals;

TEST(Clock, TheLongestDurationIsNotOver) {
  for (const Nanoseconds longest : {Nanoseconds::max(), Nanoseconds::max() - 1ns, kWaitMax, kWaitMax + 1ns}) {
    const Deadline deadline = Deadline::after(longest);
    EXPECT_FALSE(deadline.passed());
    EXPECT_GT(deadline.poll_milliseconds(), 0);
    EXPECT_GT(deadline.when() - std::chrono::steady_clock::now(), kWaitMax - 24h);
  }
}

TEST(Clock, TheShortestDurationIsOver) {
  for (const Nanoseconds shortest : {Nanoseconds::min(), -kWaitMax, -1ns, 0ns})
    EXPECT_TRUE(Deadline::after(shortest).passed()) << shortest.count();
}

TEST(Clock, LaterSaturatesAtBothEnds) {
  const TimePoint start{1s};
  EXPECT_EQ(later(start, 5ns), start + 5ns);
  EXPECT_EQ(later(start, -5ns), start - 5ns);
  EXPECT_EQ(later(start, Nanoseconds::max()), start + kWaitMax);
  EXPECT_EQ(later(TimePoint::max(), 1ns), TimePoint::max());
  EXPECT_EQ(later(TimePoint::min(), -1ns), TimePoint::min());
  EXPECT_EQ(later(TimePoint(-1s), Nanoseconds::min()), TimePoint::min());
  EXPECT_EQ(later(TimePoint::min(), 1ns), TimePoint::min() + 1ns);
}

}  // namespace
}  // namespace gradsync
