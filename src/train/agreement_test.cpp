#include "train/agreement.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace gradsync {
namespace {

void on_threads(std::uint32_t size, const std::function<void(Communicator&)>& body) {
  std::vector<Communicator> ranks = Communicator::threads(size);
  std::vector<std::thread> threads;
  for (Communicator& comm : ranks) threads.emplace_back([&] { body(comm); });
  for (std::thread& thread : threads) thread.join();
}

using Order = std::vector<std::uint32_t>;

TEST(Agreement, AnOrderThatAllSawIsTakenAsItIs) {
  on_threads(3, [](Communicator& comm) {
    Observed observed{{2, 0, 1}, {0.1, 0.2, 0.3}, 1, 2, 3};
    agree(comm, observed);
    EXPECT_EQ(observed.order, (Order{2, 0, 1}));
  });
}

TEST(Agreement, OtherwiseParametersGoByTheSumOfTheirPositions) {
  on_threads(3, [](Communicator& comm) {
    const Order orders[] = {{0, 1, 2, 3}, {1, 0, 2, 3}, {3, 1, 0, 2}};  // sums 3, 2, 7, 6
    Observed observed{orders[comm.rank()], std::vector<double>(4), 0, 0, 0};
    agree(comm, observed);
    EXPECT_EQ(observed.order, (Order{1, 0, 3, 2}));
  });
}

TEST(Agreement, TiesGoByNumber) {
  on_threads(2, [](Communicator& comm) {
    Observed observed{comm.rank() == 0 ? Order{1, 0} : Order{0, 1}, std::vector<double>(2), 0, 0, 0};
    agree(comm, observed);
    EXPECT_EQ(observed.order, (Order{0, 1}));
  });
}

TEST(Agreement, TimesAreTheLargestOfAllRanks) {
  on_threads(3, [](Communicator& comm) {
    const double mine = comm.rank();
    Observed observed{{0, 1}, {mine, 5 - mine}, mine, 2 * mine, 3 * mine};
    agree(comm, observed);
    EXPECT_EQ(observed.ready_s, (std::vector<double>{2, 5}));
    EXPECT_EQ(observed.backward_s, 2);
    EXPECT_EQ(observed.exposed_s, 4);
    EXPECT_EQ(observed.step_s, 6);
  });
}

TEST(Agreement, IsPlannedAfterTwoStepsThatSentAndOnlyOnce) {
  ExchangeSchedule schedule;
  EXPECT_FALSE(schedule.due(0, true));
  EXPECT_FALSE(schedule.due(1, true));
  EXPECT_TRUE(schedule.due(2, false));
  schedule.done(2);
  for (std::uint64_t sends = 3; sends < 100; ++sends) EXPECT_FALSE(schedule.due(sends, false));
}

TEST(Agreement, IsRepeatedEverMoreRarelyWhileOrdersChange) {
  ExchangeSchedule schedule;
  std::vector<std::uint64_t> when;
  for (std::uint64_t sends = 0; sends < 70; ++sends)
    if (schedule.due(sends, true)) {
      schedule.done(sends);
      when.push_back(sends);
    }
  EXPECT_EQ(when, (std::vector<std::uint64_t>{2, 3, 5, 9, 17, 33, 65}));
}

TEST(Agreement, EndsWhereOrdersNeverSettle) {
  ExchangeSchedule schedule;
  int exchanges = 0;
  for (std::uint64_t sends = 2; exchanges < 1000 && sends < (std::uint64_t{1} << 40); sends += std::uint64_t{1} << 20)
    if (schedule.due(sends, true)) {
      schedule.done(sends);
      ++exchanges;
    }
  EXPECT_EQ(exchanges, 64);
}

}  // namespace
}  // namespace gradsync
