#include "train/overlap_trial.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

using std::chrono::milliseconds;

// Runs steps of so many milliseconds until the trial asks, and returns what it says.
bool ask_after(OverlapTrial& trial, Communicator& comm, std::uint64_t& sends, TimePoint& now, int step_ms) {
  for (int i = 0; i < 100 && !trial.due(); ++i) {
    trial.step_begins(sends++, now);
    now += milliseconds(step_ms);
  }
  EXPECT_TRUE(trial.due());
  return trial.next(comm);
}

bool stays_without_barrier(int with_ms, int without_ms) {
  Communicator comm = std::move(Communicator::threads(1).front());
  OverlapTrial trial(true);
  trial.begin(0.5, 1);
  std::uint64_t sends = 3;
  TimePoint now{milliseconds(1000)};
  EXPECT_TRUE(ask_after(trial, comm, sends, now, with_ms)) << "the other way is tried";
  EXPECT_FALSE(trial.decided());
  const bool stays = ask_after(trial, comm, sends, now, without_ms);
  EXPECT_TRUE(trial.decided());
  return stays;
}

TEST(OverlapTrial, KeepsTheFasterWay) {
  EXPECT_TRUE(stays_without_barrier(100, 80));
  EXPECT_FALSE(stays_without_barrier(100, 120));
  EXPECT_FALSE(stays_without_barrier(100, 100)) << "of equals, the simpler";
}

TEST(OverlapTrial, IsNotHeldWhereNothingIsLeftToHide) {
  OverlapTrial trial(true);
  EXPECT_FALSE(trial.decided());
  trial.begin(0.019, 1);
  EXPECT_TRUE(trial.decided());
}

TEST(OverlapTrial, IsOverFromTheStartUnlessWanted) {
  OverlapTrial trial(false);
  trial.begin(0.5, 1);
  trial.step_begins(3, TimePoint{milliseconds(1)});
  EXPECT_TRUE(trial.decided());
  EXPECT_FALSE(trial.due());
}

TEST(OverlapTrial, DoesNotTimeStepsThatSentNothing) {
  OverlapTrial trial(true);
  trial.begin(0.5, 1);
  TimePoint now{milliseconds(1)};
  for (int i = 0; i < 100; ++i) trial.step_begins(3, now += milliseconds(1));
  EXPECT_FALSE(trial.due());
}

}  // namespace
}  // namespace gradsync
