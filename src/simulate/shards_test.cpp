#include "simulate/shards.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedule/layouts.hpp"
#include "simulate/choose.hpp"

namespace gradsync {
namespace {

using Weights = std::vector<std::uint32_t>;
using Bandwidth = std::vector<double>;

constexpr double kGbit = 125e6;  // bytes a second

std::vector<std::uint32_t> each_alone(std::uint32_t world) {
  std::vector<std::uint32_t> hosts(world);
  std::iota(hosts.begin(), hosts.end(), 0u);
  return hosts;
}

Network network_of(const Bandwidth& bandwidth, double alpha_s = 0, double overhead_s = 0) {
  Network network = Network::two_level({alpha_s, 1e-12}, {alpha_s, 1 / kGbit}, 0, overhead_s);
  for (double b : bandwidth) network.ports.push_back({1 / b, 1 / b});
  return network;
}

Recipe two_shot(const Bandwidth& bandwidth, std::uint32_t segments, Weights shards) {
  const auto world = static_cast<std::uint32_t>(bandwidth.size());
  return {Collective::all_reduce, Algorithm::two_shot, world, 0, segments, each_alone(world), std::move(shards)};
}

TEST(Shards, FollowTheFormula) {
  // Three hosts share what the fourth, a quarter as fast, need not own: T = S / b_min.
  EXPECT_EQ(uneven_shards(Bandwidth{1, 4, 4, 4}), (Weights{0, 21845, 21846, 21845}));
  EXPECT_DOUBLE_EQ(least_seconds_a_byte(Bandwidth{1, 4, 4, 4}), 1);
  // Half as fast: 2 * 3 S / 7 is less than S / b_min, too.
  EXPECT_DOUBLE_EQ(least_seconds_a_byte(Bandwidth{1, 2, 2, 2}), 1);
  // 0.8 of the others: T = 6 / 3.8 S, f = (T 0.8 - 1) / 2 = 0.1316 and (T - 1) / 2 = 0.2895.
  EXPECT_DOUBLE_EQ(least_seconds_a_byte(Bandwidth{0.8, 1, 1, 1}), 6 / 3.8);
  EXPECT_EQ(uneven_shards(Bandwidth{0.8, 1, 1, 1}), (Weights{8623, 18971, 18971, 18971}));
  // Equal ones.
  EXPECT_EQ(uneven_shards(Bandwidth{5, 5, 5, 5}), (Weights{16384, 16384, 16384, 16384}));
  EXPECT_DOUBLE_EQ(least_seconds_a_byte(Bandwidth{5, 5, 5, 5}), even_seconds_a_byte(Bandwidth{5, 5, 5, 5}));
  // One fast host among slow ones: they are bound by S / b, and it owns all.
  EXPECT_EQ(uneven_shards(Bandwidth{1, 10, 1}), (Weights{0, 65536, 0}));
}

TEST(Shards, SumUpAndKeepEveryHostWithinTheBound) {
  for (std::uint32_t n = 3; n <= 9; ++n)
    for (const double slow : {0.1, 0.25, 0.5, 0.7, 0.9, 1.0, 3.0}) {
      Bandwidth bandwidth(n, 1.0);
      bandwidth[n / 2] = slow;
      bandwidth[0] = 1.5;
      const Weights weights = uneven_shards(bandwidth);
      EXPECT_EQ(std::accumulate(weights.begin(), weights.end(), 0u), shard_weights_sum);
      const double t = least_seconds_a_byte(bandwidth);
      for (std::uint32_t i = 0; i < n; ++i) {
        const double part = static_cast<double>(weights[i]) / shard_weights_sum;
        const double sent = 1 + (n - 2) * part, rounding = (n - 2.0) / shard_weights_sum;
        EXPECT_LE(sent / bandwidth[i], t + rounding / bandwidth[i]) << n << " hosts, " << slow << ", host " << i;
      }
    }
}

TEST(Shards, SuitOnlyWherePartsMayBeUnevenAndHostsDiffer) {
  const Bandwidth uneven{1, 4, 4, 4}, even{4, 4, 4, 4};
  EXPECT_FALSE(shards_for(two_shot(uneven, 1, {}), network_of(uneven)).empty());
  EXPECT_TRUE(shards_for(two_shot(even, 1, {}), network_of(even)).empty());
  EXPECT_TRUE(shards_for(two_shot(uneven, 1, {}), network_of({})).empty());
  EXPECT_TRUE(shards_for(two_shot({1, 4}, 1, {}), network_of({1, 4})).empty());
  EXPECT_TRUE(shards_for(two_shot(uneven, 1, {}), network_of({1, 4})).empty());  // hosts that it does not know
  Recipe ring = two_shot(uneven, 1, {});
  ring.algorithm = Algorithm::ring;
  EXPECT_TRUE(shards_for(ring, network_of(uneven)).empty());
  // Two ranks a host: the parts are the hosts', not the ranks'.
  Recipe pairs{Collective::all_reduce, Algorithm::hierarchical, 8, 0, 1, {0, 0, 1, 1, 2, 2, 3, 3}};
  EXPECT_EQ(shards_for(pairs, network_of(uneven)), uneven_shards(uneven));
  pairs.algorithm = Algorithm::two_shot;
  EXPECT_TRUE(shards_for(pairs, network_of(uneven)).empty());
}

// What every rank sends in uneven parts: its contribution to the others' and its own part to all others, exactly.
TEST(Shards, GiveEveryRankTheTrafficOfItsPart) {
  for (std::uint32_t n = 3; n <= 9; ++n)
    for (const std::uint32_t segments : {1u, 4u}) {
      Bandwidth bandwidth(n, 1.0);
      bandwidth[1] = 0.3;
      const Recipe recipe = two_shot(bandwidth, segments, uneven_shards(bandwidth));
      const std::uint64_t count = 10'007;
      const Layout layout = layout_for(recipe, shape_of(recipe, 0), count);
      for (std::uint32_t r = 0; r < n; ++r) {
        const std::uint64_t own = layout.offset((r + 1) * segments) - layout.offset(r * segments);
        const Traffic traffic = traffic_of(recipe, r, Layouts(layout), 4);
        EXPECT_EQ(traffic.bytes_sent, 4 * (count - own + (n - 1) * own));
        EXPECT_EQ(traffic.bytes_received, traffic.bytes_sent);
        EXPECT_EQ(traffic.elements_reduced, (n - 1) * own);
        EXPECT_EQ(traffic.messages_sent, 2 * (n - 1) * segments);  // those of nothing, too
      }
    }
}

// No time is below the bound, and pipelined uneven parts come close: the last segment's contributions are there at T; its
// results, and those of the segment before, which waited for it, are then handed out, each in 1/G of T at most.
TEST(Shards, TakeTheTimeOfTheBoundInTheSimulation) {
  constexpr std::uint64_t bytes = 16u << 20;
  for (std::uint32_t n = 3; n <= 9; ++n)
    for (const double slow : {0.25, 0.5, 0.8})
      for (const std::uint32_t at : {0u, n / 2, n - 1}) {
        Bandwidth bandwidth(n, kGbit);
        bandwidth[at] *= slow;
        const double bound = least_seconds_a_byte(bandwidth) * bytes;
        const std::uint32_t segments = 32;
        const auto forecast =
            simulate(two_shot(bandwidth, segments, uneven_shards(bandwidth)), bytes, 1, network_of(bandwidth));
        ASSERT_TRUE(forecast.ok()) << forecast.status().message;
        EXPECT_GE(forecast->seconds, bound * (1 - 1e-4));
        EXPECT_LE(forecast->seconds, bound * (1 + 2.0 / segments)) << n << " hosts, " << slow << " at " << at;
      }
}

// Wherever the slow host is, the choice is near the bound. Where it is a leaf of both trees of double_tree, that does as well.
TEST(Shards, AreChosenWhereAHostIsSlow) {
  for (const std::uint32_t n : {4u, 8u})
    for (const std::uint64_t bytes : {std::uint64_t{1} << 20, std::uint64_t{25} << 20}) {
      std::uint32_t uneven = 0;
      for (std::uint32_t slow = 0; slow < n; ++slow) {
        Bandwidth bandwidth(n, kGbit);
        bandwidth[slow] /= 4;
        const std::vector<std::uint32_t> hosts = each_alone(n);
        const auto choice = choose({Collective::all_reduce, bytes, n, hosts}, network_of(bandwidth, 50e-6, 5e-6));
        ASSERT_TRUE(choice.ok());
        EXPECT_LE(choice->seconds, 1.1 * least_seconds_a_byte(bandwidth) * static_cast<double>(bytes));
        if (choice->algorithm == Algorithm::double_tree) continue;
        EXPECT_EQ(choice->algorithm, Algorithm::two_shot);
        EXPECT_EQ(choice->shards, uneven_shards(bandwidth));
        ++uneven;
      }
      EXPECT_GT(uneven, 0u) << n << " hosts, " << bytes << " bytes";
    }
}

TEST(Shards, OfHostsWithSeveralRanksAreChosenToo) {
  Bandwidth bandwidth(4, kGbit);
  bandwidth[2] /= 4;
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t r = 0; r < 8; ++r) hosts.push_back(r / 2);
  const std::uint64_t bytes = 25u << 20;
  const auto choice = choose({Collective::all_reduce, bytes, 8, hosts}, network_of(bandwidth, 50e-6, 5e-6));
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->algorithm, Algorithm::hierarchical);
  EXPECT_EQ(choice->shards, uneven_shards(bandwidth));
  EXPECT_LE(choice->seconds, 1.15 * least_seconds_a_byte(bandwidth) * static_cast<double>(bytes));
}

TEST(Shards, AreNotChosenBetweenEqualHosts) {
  const Bandwidth bandwidth(4, kGbit);
  const std::vector<std::uint32_t> hosts = each_alone(4);
  Network without = network_of(bandwidth, 50e-6, 5e-6);
  without.ports.clear();
  for (const std::uint64_t bytes : {std::uint64_t{64} << 10, std::uint64_t{25} << 20}) {
    const ChoiceQuery query{Collective::all_reduce, bytes, 4, hosts};
    const auto with = choose(query, network_of(bandwidth, 50e-6, 5e-6)), plain = choose(query, without);
    ASSERT_TRUE(with.ok() && plain.ok());
    EXPECT_EQ(with->algorithm, plain->algorithm);
    EXPECT_EQ(with->segments, plain->segments);
    EXPECT_TRUE(with->shards.empty());
    EXPECT_DOUBLE_EQ(with->seconds, plain->seconds);
  }
}

// A slow port in slows what comes in, and only that.
TEST(Ports, AreOfEachDirection) {
  Network network = network_of({kGbit, kGbit});
  network.ports[1].in_s_per_byte = 10 / kGbit;
  const Recipe broadcast{Collective::broadcast, Algorithm::flat, 2, 0, 1, {0, 1}};
  Recipe back = broadcast;
  back.root = 1;
  const auto slow = simulate(broadcast, 1'000'000, 1, network), fast = simulate(back, 1'000'000, 1, network);
  ASSERT_TRUE(slow.ok() && fast.ok());
  EXPECT_NEAR(slow->seconds, 10 * 1e6 / kGbit, 1e-9);
  EXPECT_NEAR(fast->seconds, 1e6 / kGbit, 1e-9);
}

// A message from a slow port leaves the receiver's port free for others.
TEST(Ports, OfAFastReceiverAreNotHeldByASlowSender) {
  const Network network = network_of({kGbit, kGbit / 10, kGbit});
  const Recipe gather{Collective::gather, Algorithm::flat, 3, 0, 1, {0, 1, 2}};
  const auto forecast = simulate(gather, 1'000'000, 1, network);
  ASSERT_TRUE(forecast.ok());
  EXPECT_NEAR(forecast->seconds, 10 * 1e6 / kGbit, 1e-9);
}

}  // namespace
}  // namespace gradsync
