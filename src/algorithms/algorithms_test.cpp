#include <gtest/gtest.h>

#include <fmt/format.h>

#include "algorithms/catalogue.hpp"
#include "algorithms/plain_interpreter.hpp"
#include "base/limits.hpp"
#include "base/random.hpp"

namespace gradsync {
namespace {

using plain::Machine;
using plain::Options;
using plain::Outcome;
using plain::Value;

std::string describe(const Recipe& recipe, Options options) {
  return fmt::format("{} {} world {} root {} segments {} hosts {}{}{}", name_of(recipe.collective),
                     name_of(recipe.algorithm), recipe.world, recipe.root, recipe.segments, recipe.hosts.size(),
                     options.in_place ? " in place" : "", options.window == 1 ? " window 1" : "");
}

bool is_point_to_point(Collective collective) {
  return collective == Collective::send || collective == Collective::recv;
}

bool has_root(Collective collective) {
  using enum Collective;
  return collective == broadcast || collective == reduce || collective == gather || collective == scatter;
}

// The only contribution that a chunk of the output may have, or nothing if it must have all of them.
std::optional<std::uint32_t> single_source(const Recipe& recipe, std::uint32_t chunks, std::uint32_t chunk) {
  using enum Collective;
  switch (recipe.collective) {
    case broadcast:
    case scatter: return recipe.root;
    case all_gather:
    case gather:
    case all_to_all: return chunk / (chunks / recipe.world);
    default: return std::nullopt;
  }
}

// Why a rank's output is not what the collective means; empty if it is.
std::string wrong(const Recipe& recipe, std::uint32_t rank, const std::vector<Value>& output) {
  const Shape shape = shape_of(recipe, rank);
  for (std::uint32_t i = 0; i < output.size(); ++i) {
    const std::uint32_t place = shape.output.first + i;
    const std::uint32_t chunk = recipe.collective == Collective::all_to_all ? rank : place;
    const auto source = single_source(recipe, shape.chunks, place);
    const std::size_t expected = source ? 1 : recipe.world;
    if (!output[i].defined || output[i].chunk != chunk) return fmt::format("rank {} chunk {} holds another", rank, i);
    if (output[i].from.size() != expected) return fmt::format("rank {} chunk {} lacks contributions", rank, i);
    for (const auto& [who, times] : output[i].from)
      if (times != 1 || (source && who != *source))
        return fmt::format("rank {} chunk {} has {} times rank {}", rank, i, times, who);
  }
  return "";
}

Outcome run(const Recipe& recipe, Options options, std::uint64_t elements = 0) {
  const std::uint32_t chunks = shape_of(recipe, 0).chunks;
  Machine machine(recipe, Layout::even(elements, chunks), options);
  return machine.run();
}

void expect_right(const Recipe& recipe, Options options) {
  ASSERT_TRUE(check(recipe).ok()) << check(recipe).message;
  // Chunks of two sizes, so that a message that lands at another place than its own shows; all-to-all moves on purpose.
  const bool moves = recipe.collective == Collective::all_to_all;
  const Outcome outcome = run(recipe, options, moves ? 0 : 2 * shape_of(recipe, 0).chunks + 1);
  ASSERT_EQ(outcome.error, "") << describe(recipe, options);
  std::map<std::uint32_t, std::uint64_t> expressions;  // of each message chunk, equal wherever it ends
  for (std::uint32_t rank = 0; rank < recipe.world; ++rank) {
    ASSERT_EQ(wrong(recipe, rank, outcome.outputs[rank]), "") << describe(recipe, options);
    if (recipe.collective != Collective::all_reduce) continue;
    for (const Value& value : outcome.outputs[rank]) {
      ASSERT_EQ(expressions.emplace(value.chunk, value.expression).first->second, value.expression)
          << "replicas differ in bits: " << describe(recipe, options);
    }
  }
}

void expect_right_in_all_ways(const Recipe& recipe) {
  for (std::size_t window : {std::numeric_limits<std::size_t>::max(), std::size_t{1}})
    for (bool in_place : {false, true})
      if (!(in_place && recipe.collective == Collective::all_to_all)) expect_right(recipe, {in_place, window});
}

TEST(Algorithms, BringEveryContributionExactlyOnceInEveryWorld) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (is_point_to_point(entry.collective)) continue;
    for (std::uint32_t world = 1; world <= 17; ++world) {
      const std::uint32_t roots = has_root(entry.collective) ? (world <= 9 ? world : 2) : 1;
      for (std::uint32_t i = 0; i < roots; ++i)
        for (std::uint32_t segments : {1u, 2u, 5u}) {
          if (segments > 1 && !entry.pipelines) continue;
          const std::uint32_t root = world <= 9 ? i : i * (world - 1);
          expect_right_in_all_ways({entry.collective, entry.algorithm, world, root, segments, {}});
        }
    }
  }
}

TEST(Algorithms, BringEveryContributionExactlyOnceInLargerWorlds) {
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t world : {31u, 33u, 48u}) {
      if (is_point_to_point(entry.collective)) continue;
      expect_right({entry.collective, entry.algorithm, world, world / 3, 1, {}}, {});
    }
}

TEST(Hierarchical, TakesHostsOfAnySizesInAnyPlacement) {
  const auto with_hosts = [](std::vector<std::uint32_t> hosts) {
    const auto world = static_cast<std::uint32_t>(hosts.size());
    return Recipe{Collective::all_reduce, Algorithm::hierarchical, world, 0, 1, std::move(hosts)};
  };
  expect_right_in_all_ways(with_hosts({0, 0, 0, 0, 1, 1, 1, 1}));
  expect_right_in_all_ways(with_hosts({0, 1, 0, 1, 0, 1}));
  expect_right_in_all_ways(with_hosts({7, 3, 7, 7, 3}));
  expect_right_in_all_ways(with_hosts({5, 4, 3, 2, 1}));
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<std::uint32_t> hosts(1 + random.below(17));
    const std::uint64_t hosts_max = 1 + random.below(6);
    for (std::uint32_t& host : hosts) host = static_cast<std::uint32_t>(random.below(hosts_max));
    SCOPED_TRACE(fmt::format("try {}", i));
    expect_right_in_all_ways(with_hosts(hosts));
  }
}

TEST(Hierarchical, CrossesHostsWithNoMoreThanASliceForEachOwner) {
  const Recipe recipe{Collective::all_reduce, Algorithm::hierarchical, 8, 0, 1, {0, 0, 0, 0, 1, 1, 1, 1}};
  const Outcome outcome = run(recipe, {}, 64);
  for (const plain::Counters& counters : outcome.counters) {
    EXPECT_EQ(counters.sent, 48u + 16u + 48u);
    EXPECT_EQ(counters.steps, 4u);
  }
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    std::uint64_t across = 0;
    for (const Step& step : make_schedule(recipe, rank).steps)
      if (step.verb == Verb::send && step.peer / 4 != rank / 4) across += step.count * 64 / 8;
    EXPECT_EQ(across, 16u);
  }
}

// The golden counters of the design: steps / most sent / sent in all / most reduced / reduced in all / most messages.
std::string counters_of(Algorithm algorithm, std::uint32_t world, std::uint64_t elements) {
  plain::Counters most, all;
  for (const plain::Counters& one : run({Collective::all_reduce, algorithm, world, 0, 1, {}}, {}, elements).counters) {
    most.steps = std::max(most.steps, one.steps);
    most.sent = std::max(most.sent, one.sent);
    most.reduced = std::max(most.reduced, one.reduced);
    most.messages = std::max(most.messages, one.messages);
    all.sent += one.sent;
    all.reduced += one.reduced;
  }
  return fmt::format("{}/{}/{}/{}/{}/{}", most.steps, most.sent, all.sent, most.reduced, all.reduced, most.messages);
}

TEST(Algorithms, HaveTheGoldenCounters) {
  using enum Algorithm;
  struct Golden {
    std::uint32_t world;
    std::uint64_t elements;
    const char *ring_, *recursive_doubling_, *halving_doubling_, *circulant_, *two_shot_, *one_shot_;
  };
  const Golden table[] = {
      {3, 24, "4/32/96/16/48/4", "3/48/96/48/72/2", "5/60/108/24/48/4", "4/32/96/16/48/4", "2/32/96/16/48/4",
       "1/48/144/48/144/2"},
      {5, 40, "8/64/320/32/160/8", "4/120/400/120/360/3", "7/120/340/50/160/6", "6/64/320/32/160/6",
       "2/64/320/32/160/8", "1/160/800/160/800/4"},
      {7, 56, "12/96/672/48/336/12", "4/168/784/168/616/3", "7/168/756/70/336/6", "6/96/672/48/336/6",
       "2/96/672/48/336/12", "1/336/2352/336/2352/6"},
      {8, 64, "14/112/896/56/448/14", "3/192/1536/192/1536/3", "6/112/896/56/448/6", "6/112/896/56/448/6",
       "2/112/896/56/448/14", "1/448/3584/448/3584/7"},
      {12, 96, "22/176/2112/88/1056/22", "5/384/3072/384/2688/4", "9/312/2304/132/1056/8", "8/176/2112/88/1056/8",
       "2/176/2112/88/1056/22", "1/1056/12672/1056/12672/11"},
  };
  for (const Golden& golden : table) {
    SCOPED_TRACE(fmt::format("{} ranks", golden.world));
    EXPECT_EQ(counters_of(ring, golden.world, golden.elements), golden.ring_);
    EXPECT_EQ(counters_of(recursive_doubling, golden.world, golden.elements), golden.recursive_doubling_);
    EXPECT_EQ(counters_of(halving_doubling, golden.world, golden.elements), golden.halving_doubling_);
    EXPECT_EQ(counters_of(circulant, golden.world, golden.elements), golden.circulant_);
    EXPECT_EQ(counters_of(two_shot, golden.world, golden.elements), golden.two_shot_);
    EXPECT_EQ(counters_of(one_shot, golden.world, golden.elements), golden.one_shot_);
  }
}

TEST(Circulant, TakesTwiceLog2RoundsInEveryWorld) {
  for (std::uint32_t world = 2; world <= 40; ++world) {
    const std::uint32_t log2 = 32u - static_cast<std::uint32_t>(__builtin_clz(world - 1));
    const std::string expected = fmt::format("{}/{}/{}/{}/{}/{}", 2 * log2, 6 * (world - 1), 6 * world * (world - 1),
                                             3 * (world - 1), 3 * world * (world - 1), 2 * log2);
    EXPECT_EQ(counters_of(Algorithm::circulant, world, 3 * world), expected) << world;
  }
}

TEST(DoubleTree, SendsAtMostTwiceTheMessageFromAnyRank) {
  for (std::uint32_t world = 2; world <= 33; ++world)
    for (const plain::Counters& one :
         run({Collective::all_reduce, Algorithm::double_tree, world, 0, 4, {}}, {}, 64).counters)
      EXPECT_LE(one.sent, 2u * 64u) << world;
}

TEST(DoubleTree, HasLogarithmicDepth) {
  for (std::uint32_t world = 2; world <= 33; ++world) {
    const std::uint32_t depth = 31u - static_cast<std::uint32_t>(__builtin_clz(world));
    for (const plain::Counters& one :
         run({Collective::all_reduce, Algorithm::double_tree, world, 0, 1, {}}, {}, 64).counters)
      EXPECT_LE(one.steps, 2 * depth) << world;
  }
}

// Two for the double tree at most: where two ranks are linked in both trees, each tree's message takes its own step.
TEST(Tree, AddsOneStepForEachFurtherSegment) {
  for (Algorithm algorithm : {Algorithm::tree, Algorithm::double_tree})
    for (std::uint32_t world = 2; world <= 33; ++world)
      for (std::uint32_t segments : {2u, 9u}) {
        const std::uint32_t log2 = 32u - static_cast<std::uint32_t>(__builtin_clz(world));  // depth at most
        std::uint32_t steps = 0;
        for (const plain::Counters& one :
             run({Collective::all_reduce, algorithm, world, 0, segments, {}}, {}, 64).counters)
          steps = std::max(steps, one.steps);
        EXPECT_LE(steps, 2 * log2 + (segments - 1) * (algorithm == Algorithm::tree ? 1 : 2))
            << name_of(algorithm) << ' ' << world << " ranks";
      }
}

TEST(Tree, BroadcastsInLog2Steps) {
  for (std::uint32_t world = 2; world <= 33; ++world) {
    const std::uint32_t log2 = 32u - static_cast<std::uint32_t>(__builtin_clz(world - 1));
    for (const plain::Counters& one : run({Collective::broadcast, Algorithm::tree, world, 1, 1, {}}, {}, 64).counters)
      EXPECT_LE(one.steps, log2) << world;
  }
}

TEST(PointToPoint, IsOneMessageFromInputToOutput) {
  const Schedule sender = make_schedule({Collective::send, Algorithm::direct, 4, 3, 1, {}}, 1);
  const Schedule receiver = make_schedule({Collective::recv, Algorithm::direct, 4, 1, 1, {}}, 3);
  EXPECT_EQ(sender.shape, (Shape{1, {0, 1}, {0, 0}, 0}));
  EXPECT_EQ(receiver.shape, (Shape{1, {0, 0}, {0, 1}, 0}));
  const Step sent{0, 1, 0, 3, Verb::send, Mode::assign, Space::input, Space::input};
  const Step received{0, 1, 0, 1, Verb::recv, Mode::assign, Space::output, Space::output};
  EXPECT_EQ(sender.steps, std::vector<Step>{sent});
  EXPECT_EQ(receiver.steps, std::vector<Step>{received});
  EXPECT_TRUE(make_schedule({Collective::send, Algorithm::direct, 4, 3, 1, {}}, 3).steps.empty());
}

TEST(Catalogue, HasEveryAlgorithmOfTheDesign) {
  EXPECT_EQ(known_algorithms_of(Collective::all_reduce),
            "flat, ring, recursive_doubling, halving_doubling, circulant, one_shot, two_shot, tree, double_tree, "
            "hierarchical");
  EXPECT_EQ(known_algorithms_of(Collective::reduce_scatter), "ring, circulant, direct");
  EXPECT_EQ(known_algorithms_of(Collective::all_gather), "ring, circulant, direct");
  for (Collective rooted : {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter})
    EXPECT_EQ(known_algorithms_of(rooted), "flat, tree");
  for (std::size_t i = 0; i < kCollectiveCount; ++i)
    EXPECT_NE(known_algorithms_of(static_cast<Collective>(i)), "") << i;
}

TEST(Catalogue, SaysWhatIsWrongWithARecipe) {
  const auto message = [](Recipe recipe) { return check(recipe).message; };
  using enum Collective;
  using A = Algorithm;
  EXPECT_EQ(message({broadcast, A::ring, 4, 0, 1, {}}), "broadcast has no algorithm ring, it has flat, tree");
  EXPECT_EQ(message({all_reduce, A::automatic, 4, 0, 1, {}}),
            "all_reduce has no algorithm auto, it has " + known_algorithms_of(all_reduce));
  EXPECT_EQ(message({all_reduce, A::ring, 0, 0, 1, {}}), "all_reduce ring: world of 0 ranks, allowed are 1 to 1048576");
  EXPECT_EQ(message({all_reduce, A::ring, limits::ranks_max + 1, 0, 1, {}}),
            "all_reduce ring: world of 1048577 ranks, allowed are 1 to 1048576");
  EXPECT_EQ(message({broadcast, A::tree, 4, 4, 1, {}}), "broadcast tree: root 4 is outside the world of 4 ranks");
  EXPECT_EQ(message({send, A::direct, 4, 9, 1, {}}), "send direct: peer 9 is outside the world of 4 ranks");
  EXPECT_EQ(message({all_reduce, A::tree, 4, 0, 0, {}}), "all_reduce tree: 0 segments, allowed are 1 to 64");
  EXPECT_EQ(message({all_reduce, A::hierarchical, 4, 0, 1, {0, 1}}),
            "all_reduce hierarchical: hosts of 2 ranks given, expected none or 4");
  EXPECT_EQ(message({all_reduce, A::two_shot, 4, 0, 1, {}, {1, 1, 1}}),
            "all_reduce two_shot: weights of 3 shards given, expected 4");
  EXPECT_EQ(message({all_reduce, A::hierarchical, 4, 0, 1, {0, 0, 1, 1}, {1, 1, 1, 1}}),
            "all_reduce hierarchical: weights of 4 shards given, expected 2");
  EXPECT_EQ(message({all_reduce, A::two_shot, 2, 0, 1, {}, {0, 0}}),
            "all_reduce two_shot: the shards' weights add up to 0, expected 1 to 4294967295");
  EXPECT_EQ(message({all_reduce, A::two_shot, 2, 0, 1, {}, {UINT32_MAX, 1}}),
            "all_reduce two_shot: the shards' weights add up to 4294967296, expected 1 to 4294967295");
  EXPECT_EQ(message({all_reduce, A::ring, 2, 0, 1, {}, {1, 1}}),
            "all_reduce ring has no uneven shards; all_reduce two_shot (a weight a rank) and hierarchical (a weight a "
            "host) do");
  EXPECT_EQ(message({static_cast<Collective>(99), A::ring, 4, 0, 1, {}}),
            "unknown collective 99, known are " + known_collectives());
}

}  // namespace
}  // namespace gradsync
