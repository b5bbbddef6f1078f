#include "train/timeline.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

TEST(Timeline, TimeInWhichSeveralBucketsWereUnderWayCountsOnce) {
  StepTimeline step;
  step.buckets = {{0, 8, 1, 1, 0, 3}, {1, 8, 2, 2, 0, 5}, {2, 8, 7, 7, 0, 8}};
  EXPECT_DOUBLE_EQ(step.communication_s(), 5);
  step.waited_s = 1;
  EXPECT_DOUBLE_EQ(step.hidden_share(), 0.8);
}

// Reduced at 2, gathered from the end of backward at 4 on.
TEST(Timeline, BetweenTheHalvesOfAnExchangeNothingIsUnderWay) {
  StepTimeline step;
  step.backward_end_s = 4;
  step.buckets = {{0, 8, 1, 1, 2, 7}};
  EXPECT_DOUBLE_EQ(step.communication_s(), 4);
}

TEST(Timeline, NothingSentIsNothingExposed) {
  StepTimeline step;
  EXPECT_EQ(step.communication_s(), 0);
  EXPECT_EQ(step.hidden_share(), 1);
}

TEST(Timeline, WaitingLongerThanCommunicationHidesNothing) {
  StepTimeline step;
  step.buckets = {{0, 8, 1, 1, 0, 2}};
  step.waited_s = 3;
  EXPECT_EQ(step.hidden_share(), 0);
}

}  // namespace
}  // namespace gradsync
