#include "simulate/choose.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <functional>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradsync {
namespace {

const Network kUniform = Network::uniform({5e-6, 1e-10}, 3e-11, 1e-6);

std::vector<std::uint32_t> hosts_of(std::uint32_t world, std::uint32_t size) {
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t r = 0; r < world; ++r) hosts.push_back(r / size);
  return hosts;
}
Choice chosen(const ChoiceQuery& query, const Network& network) {
  Result<Choice> choice = choose(query, network);
  EXPECT_TRUE(choice.ok()) << choice.status().message;
  return choice.ok() ? *choice : Choice{};
}

TEST(Choose, TakesFewStepsForSmallMessagesAndFewBytesForLargeOnes) {
  for (std::uint32_t world : {8u, 16u, 64u}) {
    const Choice small = chosen({Collective::all_reduce, 8, world, {}}, kUniform);
    const auto quick = small.algorithm == Algorithm::recursive_doubling || small.algorithm == Algorithm::one_shot;
    EXPECT_TRUE(quick) << name_of(small.algorithm) << " for " << world;
    const Choice large = chosen({Collective::all_reduce, 256u << 20, world, {}}, kUniform);
    const double optimum = 2. * (world - 1) / world * (256u << 20) * 1e-10;
    EXPECT_LT(large.seconds, 1.4 * optimum) << name_of(large.algorithm);
    EXPECT_NE(large.algorithm, Algorithm::recursive_doubling);
    EXPECT_NE(large.algorithm, Algorithm::one_shot);
  }
}

TEST(Choose, IsTheFastestOfAllCandidates) {
  const std::vector<std::uint32_t> hosts = hosts_of(12, 4);
  const Network levels = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
  for (std::size_t c = 0; c < kCollectiveCount; ++c)
    for (std::uint64_t bytes : {0u, 1u, 100u, 10'000u, 1'000'000u, 50'000'000u}) {
      const auto collective = static_cast<Collective>(c);
      if (collective == Collective::send || collective == Collective::recv) continue;
      for (const Network& network : {kUniform, levels}) {
        const ChoiceQuery query{collective, bytes, 12, hosts};
        const Choice choice = chosen(query, network);
        Result<std::vector<Choice>> all = rank_candidates(query, network);
        ASSERT_TRUE(all.ok()) << all.status().message;
        EXPECT_NEAR(choice.seconds, all->front().seconds, 2e-9 * choice.seconds)
            << name_of(collective) << ' ' << bytes << ": " << name_of(choice.algorithm) << " instead of "
            << name_of(all->front().algorithm);
      }
    }
}

TEST(Choose, GoesByLevelsBetweenHosts) {
  const Network levels = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
  const std::vector<std::uint32_t> hosts = hosts_of(32, 8);
  EXPECT_EQ(chosen({Collective::all_reduce, 64u << 20, 32, hosts}, levels).algorithm, Algorithm::hierarchical);
}

TEST(Choose, PipelinesLongMessages) {
  const Choice small = chosen({Collective::broadcast, 8, 32, {}}, kUniform),
               large = chosen({Collective::broadcast, 256u << 20, 32, {}}, kUniform);
  EXPECT_EQ(small.segments, 1u);
  EXPECT_GT(large.segments, 1u);
}

TEST(Choose, IsTheSameEveryTime) {
  const ChoiceQuery query{Collective::all_reduce, 12345, 31, {}};
  const Choice first = chosen(query, kUniform), second = chosen(query, kUniform);
  EXPECT_EQ(first.algorithm, second.algorithm);
  EXPECT_EQ(first.segments, second.segments);
  EXPECT_EQ(first.seconds, second.seconds);
}

// The rounding modes, and FTZ with DAZ where there is such a thing.
std::vector<std::function<void()>> float_modes() {
  std::vector<std::function<void()>> modes;
  for (const int rounding : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD})
    modes.emplace_back([rounding] { std::fesetround(rounding); });
#if defined(__x86_64__)
  modes.emplace_back([] { _mm_setcsr(_mm_getcsr() | 0x8040); });
  modes.emplace_back([] { _mm_setcsr((_mm_getcsr() & ~0x6000u) | 0x6000u); });
#endif
  return modes;
}
// What a function returns in that mode.
template <class Function>
auto in_mode(const std::function<void()>& set, Function function) {
  std::fenv_t before;
  std::fegetenv(&before);
  set();
  auto result = function();
  std::fesetenv(&before);
  return result;
}

TEST(Choose, DoesNotDependOnTheCallersFloatMode) {
  const Network levels = Network::two_level({1.1e-6, 1.3e-11}, {2.3e-5, 1.7e-10}, 1.9e-11, 5.3e-7);
  const std::vector<std::uint32_t> hosts = hosts_of(12, 4);
  for (const auto collective : {Collective::all_reduce, Collective::broadcast, Collective::all_gather})
    for (std::uint64_t bytes : {0u, 7u, 1000u, 123'457u, 10'000'019u}) {
      const ChoiceQuery query{collective, bytes, 12, hosts};
      const Choice plain = chosen(query, levels);
      const auto ranking = rank_candidates(query, levels);
      const Recipe recipe{Collective::all_reduce, Algorithm::ring, 12, 0, 1, hosts};
      const Payload payload{layouts_of_count(bytes), 1};
      const double estimated = estimate(recipe, payload, levels).seconds;
      const double simulated = simulate(recipe, payload, levels)->seconds;
      for (const auto& mode : float_modes()) {
        const Choice other = in_mode(mode, [&] { return chosen(query, levels); });
        EXPECT_EQ(other.algorithm, plain.algorithm);
        EXPECT_EQ(other.segments, plain.segments);
        EXPECT_EQ(other.seconds, plain.seconds);
        const auto again = in_mode(mode, [&] { return rank_candidates(query, levels); });
        ASSERT_EQ(again->size(), ranking->size());
        for (std::size_t i = 0; i < ranking->size(); ++i) EXPECT_EQ((*again)[i].seconds, (*ranking)[i].seconds);
        EXPECT_EQ(in_mode(mode, [&] { return estimate(recipe, payload, levels).seconds; }), estimated);
        EXPECT_EQ(in_mode(mode, [&] { return simulate(recipe, payload, levels)->seconds; }), simulated);
      }
    }
}

TEST(Choose, LeavesTheCallersFloatModeAsItWas) {
  for (const int rounding : {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD})
    EXPECT_EQ(in_mode([&] { std::fesetround(rounding); },
                      [&] {
                        chosen({Collective::all_reduce, 1000, 8, {}}, kUniform);
                        return std::fegetround();
                      }),
              rounding);
}

// What differs by less than another order of the same additions would is a tie, and the catalogue decides.
TEST(Choose, LastBitsDoNotDecide) {
  const Network levels = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
  const std::vector<std::uint32_t> hosts = hosts_of(12, 4);
  for (const auto collective : {Collective::all_reduce, Collective::broadcast, Collective::all_gather})
    for (std::uint64_t bytes : {0u, 8u, 1000u, 1u << 20, 50'000'000u})
      for (const Network& network : {kUniform, levels}) {
        const ChoiceQuery query{collective, bytes, 12, hosts};
        const Choice plain = chosen(query, network);
        for (const double factor : {1 - 1e-15, 1 - 4e-16, 1 + 4e-16, 1 + 1e-15}) {
          Network near = network;
          for (double* value : {&near.inside.beta_s_per_byte, &near.between.alpha_s, &near.overhead_s})
            *value *= factor;
          for (double* value : {&near.inside.alpha_s, &near.between.beta_s_per_byte, &near.gamma_s_per_byte})
            *value /= factor;
          const Choice other = chosen(query, near);
          EXPECT_EQ(other.algorithm, plain.algorithm) << name_of(collective) << ' ' << bytes;
          EXPECT_EQ(other.segments, plain.segments) << name_of(collective) << ' ' << bytes;
        }
      }
}

TEST(Choose, AnswersForEveryCollectiveAndWorld) {
  for (std::size_t c = 0; c < kCollectiveCount; ++c)
    for (std::uint32_t world : {1u, 2u, 3u, 7u, 33u, 1000u}) {
      const auto collective = static_cast<Collective>(c);
      const Choice choice = chosen({collective, 1000, world, {}}, kUniform);
      EXPECT_NE(find_in_catalogue(collective, choice.algorithm), nullptr);
    }
  EXPECT_THAT(choose({Collective::all_reduce, 1, 0, {}}, kUniform).status().message,
              testing::HasSubstr("world of 0 ranks"));
}

TEST(Choose, AnswersAtThousandsOfRanks) {
  const Choice small = chosen({Collective::all_reduce, 64, 4096, {}}, kUniform);
  EXPECT_EQ(small.algorithm, Algorithm::recursive_doubling);
  const Choice large = chosen({Collective::all_reduce, 1u << 30, 4096, {}}, kUniform);
  EXPECT_LT(large.seconds, 1.5 * 2 * (1u << 30) * 1e-10);
}

// Where all ranks do the same, one rank and its image tell the whole story.
TEST(Estimate, EqualsTheSimulationOfSymmetricAlgorithms) {
  using enum Collective;
  const std::pair<Collective, Algorithm> symmetric[] = {{all_reduce, Algorithm::ring},
                                                        {all_reduce, Algorithm::circulant},
                                                        {all_reduce, Algorithm::recursive_doubling},
                                                        {all_reduce, Algorithm::halving_doubling},
                                                        {reduce_scatter, Algorithm::ring},
                                                        {reduce_scatter, Algorithm::circulant},
                                                        {all_gather, Algorithm::ring},
                                                        {all_gather, Algorithm::direct},
                                                        {all_to_all, Algorithm::direct}};
  for (const auto& [collective, algorithm] : symmetric)
    for (std::uint64_t bytes : {0u, 4096u, 1u << 20}) {
      const Recipe recipe{collective, algorithm, 16, 0, 1, {}};
      const Payload payload{layouts_of_count(bytes), 1};
      const double simulated = simulate(recipe, payload, kUniform)->seconds;
      EXPECT_NEAR(estimate(recipe, payload, kUniform).seconds, simulated, 1e-9 * simulated)
          << name_of(collective) << ' ' << name_of(algorithm) << ' ' << bytes;
    }
}

TEST(Estimate, NeverPromisesMoreThanTheBound) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t world : {2u, 7u, 16u}) {
      if ((entry.collective == Collective::send || entry.collective == Collective::recv) && world != 2) continue;
      const Recipe recipe{entry.collective, entry.algorithm, world, 0, entry.pipelines ? 4u : 1u, hosts_of(world, 4)};
      const Network levels = Network::two_level({1e-6, 1e-11}, {2e-5, 1e-10}, 1e-11, 5e-7);
      for (std::uint64_t bytes : {100u, 1u << 20, 50u << 20})
        for (const Network& network : {kUniform, levels}) {
          const Payload payload{layouts_of_count(bytes), 1};
          EXPECT_LE(estimate(recipe, payload, network).at_least_seconds,
                    simulate(recipe, payload, network)->seconds * (1 + 1e-9))
              << name_of(entry.collective) << ' ' << name_of(entry.algorithm) << ' ' << world;
        }
    }
}

}  // namespace
}  // namespace gradsync
