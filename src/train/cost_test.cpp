#include "train/cost.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace gradsync {
namespace {

std::vector<MessageCost> measured(std::uint32_t world) {
  std::vector<Communicator> ranks = Communicator::threads(world);
  std::vector<MessageCost> costs(world);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      costs[r] = measure_cost(ranks[r]);
      ranks[r].barrier();  // nothing was left behind
    });
  for (std::thread& thread : threads) thread.join();
  return costs;
}

TEST(MeasureCost, IsEqualOnAllRanksAndAboveZero) {
  for (const std::uint32_t world : {2u, 3u, 4u}) {
    const std::vector<MessageCost> costs = measured(world);
    for (const MessageCost& cost : costs) {
      EXPECT_EQ(cost.latency_s, costs[0].latency_s);
      EXPECT_EQ(cost.seconds_per_byte, costs[0].seconds_per_byte);
    }
    EXPECT_GT(costs[0].latency_s, 0);
    EXPECT_GT(costs[0].seconds_per_byte, 0);
  }
}

TEST(MeasureCost, IsZeroAlone) {
  EXPECT_EQ(measured(1)[0].latency_s, 0);
  EXPECT_EQ(measured(1)[0].seconds_per_byte, 0);
}

}  // namespace
}  // namespace gradsync
