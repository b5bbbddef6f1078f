// What a caller can ask of an operation under way.
#include <gtest/gtest.h>

#include "gradsync/communicator.hpp"

namespace gradsync {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Work, TellsWhenItFinishedHoweverLateItIsAsked) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  std::vector<float> a(1000, 1), b(1000, 3);
  const Clock::time_point before = Clock::now();
  Work first = ranks[0].all_reduce_async(view(a), ReduceOp::avg);
  EXPECT_EQ(first.completed_at(), Clock::time_point{});
  Work second = ranks[1].all_reduce_async(view(b), ReduceOp::avg);
  first.wait();
  second.wait();
  const Clock::time_point after = Clock::now();
  for (const Work& work : {first, second}) {
    EXPECT_GE(work.completed_at(), before);
    EXPECT_LE(work.completed_at(), after);
    EXPECT_EQ(work.completed_at(), work.completed_at());
  }
  EXPECT_EQ(Work().completed_at(), Clock::time_point{});
}

TEST(Work, TellsWhenItFailed) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  std::vector<float> a(10);
  Work work = ranks[0].all_reduce_async(view(a), ReduceOp::sum);
  const Clock::time_point before = Clock::now();
  ranks[0].abort();
  EXPECT_THROW(work.wait(), Error);
  EXPECT_GE(work.completed_at(), before);
}

}  // namespace
}  // namespace gradsync
