#include "simulate/forecast.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gradsync {
namespace {

constexpr double kAlpha = 5e-6, kBeta = 1e-10, kGamma = 3e-11, kOverhead = 1e-6;
const Network kUniform = Network::uniform({kAlpha, kBeta}, kGamma, kOverhead);

double seconds_of(const Recipe& recipe, std::uint64_t bytes, const Network& network) {
  Result<Forecast> forecast = simulate(recipe, bytes, 1, network);
  EXPECT_TRUE(forecast.ok()) << forecast.status().message;
  return forecast.ok() ? forecast->seconds : NAN;
}
Recipe all_reduce(Algorithm algorithm, std::uint32_t world, std::vector<std::uint32_t> hosts = {}) {
  return {Collective::all_reduce, algorithm, world, 0, 1, std::move(hosts)};
}
std::vector<std::uint32_t> hosts_of(std::uint32_t world, std::uint32_t size) {
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t r = 0; r < world; ++r) hosts.push_back(r / size);
  return hosts;
}
// Equal but for the rounding of a few thousand additions.
void expect_seconds(double found, double expected) { EXPECT_NEAR(found, expected, expected * 1e-11); }

// One step after the other: overhead of the sender, way, overhead of the receiver, sum.
double step(double bytes, bool reduces) {
  return 2 * kOverhead + kAlpha + bytes * kBeta + (reduces ? bytes * kGamma : 0);
}

TEST(Forecast, OfARingIsItsClosedForm) {
  for (std::uint32_t n : {2u, 3u, 8u, 64u}) {
    const double part = 1000;
    expect_seconds(seconds_of(all_reduce(Algorithm::ring, n), 1000 * n, kUniform),
                   (n - 1) * (step(part, true) + step(part, false)));
  }
}

TEST(Forecast, OfRecursiveDoublingIsItsClosedForm) {
  for (std::uint32_t rounds : {1u, 2u, 5u})
    expect_seconds(seconds_of(all_reduce(Algorithm::recursive_doubling, 1u << rounds), 4096, kUniform),
                   rounds * step(4096, true));
}

TEST(Forecast, OfHalvingDoublingIsItsClosedForm) {
  const double bytes = 8192;
  double expected = 0;
  for (double part : {bytes / 2, bytes / 4, bytes / 8}) expected += step(part, true) + step(part, false);
  expect_seconds(seconds_of(all_reduce(Algorithm::halving_doubling, 8), 8192, kUniform), expected);
}

TEST(Forecast, OfCirculantIsItsClosedForm) {
  // Seven ranks: blocks exchanged by 7 -> 4 -> 2 -> 1, and back.
  const double block = 1000;
  double expected = 0;
  for (double blocks : {3., 2., 1.}) expected += step(blocks * block, true) + step(blocks * block, false);
  expect_seconds(seconds_of(all_reduce(Algorithm::circulant, 7), 7000, kUniform), expected);
}

// A root's port sends one message at a time, and its processor prepares the next one meanwhile.
TEST(Forecast, OfAFlatBroadcastFillsTheRootsPort) {
  const double transfer = 1e6 * kBeta;
  expect_seconds(seconds_of({Collective::broadcast, Algorithm::flat, 5, 0, 1, {}}, 1'000'000, kUniform),
                 kOverhead + 4 * transfer + kAlpha + kOverhead);
}

TEST(Forecast, OfOneMessageAddsUpItsParts) {
  expect_seconds(seconds_of({Collective::send, Algorithm::direct, 2, 0, 1, {}}, 1000, kUniform), step(1000, false));
}

TEST(Forecast, OfOneRankIsNothing) { EXPECT_EQ(seconds_of(all_reduce(Algorithm::ring, 1), 1000, kUniform), 0); }

// Pairs across two hosts: with a shared port k of them take k times the transfer of one.
TEST(Forecast, ASharedPortDividesItsBandwidth) {
  const auto pairs = [](std::uint32_t world) {
    std::vector<Schedule> schedules(world);
    for (std::uint32_t r = 0; r < world; ++r) {
      Recipe recipe = all_reduce(Algorithm::flat, world, hosts_of(world, world / 2));
      schedules[r] = {recipe, r, {1, {0, 1}, {0, 1}, 0}, {}};
      Emit emit(schedules[r].steps);
      if (r < world / 2) emit.send(r + world / 2, {Space::input, {0, 1}});
      else emit.recv(r - world / 2, {Space::output, {0, 1}});
    }
    return schedules;
  };
  Network network = Network::two_level({0, 0}, {1e-5, 1e-9});
  const auto seconds = [&](std::uint32_t world) {
    const std::vector<Schedule> schedules = pairs(world);
    return simulate(HeldWorld(schedules), Payload{layouts_of_count(1'000'000), 1}, network)->seconds;
  };
  expect_seconds(seconds(2), 1e-5 + 1e-3);
  expect_seconds(seconds(4), 1e-5 + 2e-3);
  expect_seconds(seconds(8), 1e-5 + 4e-3);
  network.nic_shared = false;
  expect_seconds(seconds(8), 1e-5 + 1e-3);
}

TEST(Forecast, HierarchicalBeatsARingBetweenHosts) {
  const Network network = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
  for (std::uint64_t bytes : {4096u, 1u << 20, 64u << 20}) {
    std::vector<std::uint32_t> dealt;  // neighbours in the ring are on different hosts
    for (std::uint32_t r = 0; r < 32; ++r) dealt.push_back(r % 4);
    for (const auto& hosts : {hosts_of(32, 8), dealt})
      EXPECT_LT(seconds_of(all_reduce(Algorithm::hierarchical, 32, hosts), bytes, network),
                seconds_of(all_reduce(Algorithm::ring, 32, hosts), bytes, network))
          << bytes;
  }
}

TEST(Forecast, TakesHostsOfAnyNumbers) {
  const Network network = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10});
  EXPECT_EQ(seconds_of(all_reduce(Algorithm::ring, 4, {0, 0, 1, 1}), 1000, network),
            seconds_of(all_reduce(Algorithm::ring, 4, {4000000000u, 4000000000u, 7, 7}), 1000, network));
}

TEST(Forecast, CountsWhatTrafficCounts) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t world = 1; world <= 9; ++world) {
      const bool pair = entry.collective == Collective::send || entry.collective == Collective::recv;
      if (pair && world != 2) continue;
      const Recipe recipe{entry.collective, entry.algorithm,           world,
                          world - 1,        entry.pipelines ? 3u : 1u, hosts_of(world, 2)};
      const Result<Forecast> forecast = simulate(recipe, 13, 8, kUniform);
      ASSERT_TRUE(forecast.ok()) << forecast.status().message;
      const RecipeWorld ranks(recipe);
      Traffic total;
      for (std::uint32_t r = 0; r < world; ++r) {
        const Traffic traffic =
            traffic_of(ranks.recipe(r), r, Layouts(layout_for(recipe, shape_of(ranks.recipe(r), r), 13)), 8);
        EXPECT_EQ(forecast->ranks[r], traffic) << name_of(entry.algorithm) << ' ' << world << " rank " << r;
        total += traffic;
      }
      EXPECT_EQ(forecast->total, total);
      EXPECT_EQ(total.messages_sent, total.messages_received);
      EXPECT_EQ(total.bytes_sent, total.bytes_received);
    }
}

TEST(Forecast, CountsAreTheGoldenCounters) {
  const Result<Forecast> ring = simulate(all_reduce(Algorithm::ring, 12), 96, 4, kUniform);
  EXPECT_EQ(ring->total, (Traffic{12 * 22, 2112 * 4, 12 * 22, 2112 * 4, 1056}));
  EXPECT_EQ(ring->ranks[5], (Traffic{22, 176 * 4, 22, 176 * 4, 88}));
  const Result<Forecast> circulant = simulate(all_reduce(Algorithm::circulant, 7), 56, 4, kUniform);
  EXPECT_EQ(circulant->total, (Traffic{7 * 6, 672 * 4, 7 * 6, 672 * 4, 336}));
  const Result<Forecast> empty = simulate(all_reduce(Algorithm::ring, 3), 0, 4, kUniform);
  EXPECT_EQ(empty->ranks[0], (Traffic{4, 0, 4, 0, 0}));
}

TEST(Forecast, NamesARankThatWaitsForever) {
  std::vector<Schedule> schedules(2);
  for (std::uint32_t r : {0u, 1u}) {
    schedules[r] = {all_reduce(Algorithm::flat, 2), r, {1, {0, 1}, {0, 1}, 0}, {}};
    Emit(schedules[r].steps).recv(1 - r, {Space::output, {0, 1}});
  }
  EXPECT_EQ(simulate(HeldWorld(schedules), Payload{layouts_of_count(1), 1}, kUniform).status().message,
            "rank 0 waits forever at step 0");
}

TEST(Forecast, RefusesWhatHasNoSchedule) {
  EXPECT_THAT(simulate(all_reduce(Algorithm::ring, 0), 1, 1, kUniform).status().message,
              testing::HasSubstr("world of 0 ranks"));
  EXPECT_THAT(simulate({Collective::send, Algorithm::direct, 3, 0, 1, {}}, 1, 1, kUniform).status().message,
              testing::HasSubstr("send is simulated in a world of 2, not of 3"));
}

TEST(Forecast, ReachesThousandsOfRanks) {
  // 16,384 = 2^14 ranks; S / 2 + S / 4 + … each way.
  const double bytes = 16384. * 64;
  double halving = 0;
  for (double part = bytes / 2; part >= 64; part /= 2) halving += step(part, true) + step(part, false);
  expect_seconds(seconds_of(all_reduce(Algorithm::circulant, 16384), 16384 * 64, kUniform), halving);
  expect_seconds(seconds_of(all_reduce(Algorithm::recursive_doubling, 16384), 1024, kUniform), 14 * step(1024, true));
}

}  // namespace
}  // namespace gradsync
