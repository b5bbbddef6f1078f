// Engines over loopback streams, all driven in turn by one thread: no clock, no scheduler, every run the same.
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "algorithms/catalogue.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kEpoch = 77;

// A world of engines whose streams hold `ring_bytes`.
class World {
 public:
  World(std::uint32_t size, std::size_t ring_bytes) {
    auto fabric = make_loopback_fabric(size, ring_bytes);
    for (std::uint32_t r = 0; r < size; ++r)
      engines_.push_back(std::make_unique<Engine>(loopback_transport(fabric, r)));
  }
  Engine& engine(std::uint32_t rank) { return *engines_[rank]; }

  // Turns until all are idle; false if nothing moves any more.
  bool run() {
    for (int still = 0; still < 3;) {
      bool moved = false, idle = true;
      for (auto& engine : engines_) moved = engine->progress() || moved;
      if (!moved)
        for (auto& engine : engines_) moved = engine->attend(TimePoint{}) || moved;
      for (auto& engine : engines_) idle = idle && engine->idle();
      if (idle) return true;
      still = moved ? 0 : still + 1;
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<Engine>> engines_;
};

Recipe recipe_of(Algorithm algorithm, std::uint32_t world) {
  return {Collective::all_reduce, algorithm, world, 0, 1, {}};
}

Request all_reduce_request(const Recipe& recipe, std::uint32_t rank, std::vector<std::int32_t>& data) {
  Request request;
  request.sequence = 1;
  request.schedule = std::make_shared<const Schedule>(make_schedule(recipe, rank));
  request.call = {recipe.collective, DType::i32, ReduceOp::sum, recipe.algorithm, 0, recipe.segments, data.size(), 0};
  request.input = request.output = data.data();
  request.input_layout = request.output_layout = layout_for(recipe, request.schedule->shape, data.size());
  request.deadline = Deadline::at(TimePoint::max());
  request.contributions = recipe.world;
  return request;
}

struct Outcome {
  bool ended = false;
  std::vector<Status> statuses;
  std::uint64_t staging_bytes_peak = 0;
};

Outcome all_reduce(World& world, const Recipe& recipe, std::vector<std::vector<std::int32_t>>& data) {
  std::vector<std::shared_ptr<Completion>> completions;
  for (std::uint32_t r = 0; r < recipe.world; ++r) {
    completions.push_back(std::make_shared<Completion>());
    world.engine(r).submit(std::make_unique<Operation>(all_reduce_request(recipe, r, data[r]), kEpoch, completions[r]));
  }
  Outcome outcome;
  outcome.ended = world.run();
  for (std::uint32_t r = 0; r < recipe.world; ++r) {
    outcome.statuses.push_back(completions[r]->done() ? completions[r]->status() : Status{});
    outcome.staging_bytes_peak = std::max(outcome.staging_bytes_peak, world.engine(r).counters().staging_bytes_peak);
  }
  return outcome;
}

void expect_sums(const Recipe& recipe, std::size_t ring_bytes, std::size_t count) {
  SCOPED_TRACE(fmt::format("{} world {} count {} ring {}", name_of(recipe.algorithm), recipe.world, count, ring_bytes));
  World world(recipe.world, ring_bytes);
  std::vector<std::vector<std::int32_t>> data(recipe.world, std::vector<std::int32_t>(count));
  std::vector<std::int32_t> expected(count);
  for (std::uint32_t r = 0; r < recipe.world; ++r)
    for (std::size_t i = 0; i < count; ++i) {
      data[r][i] = static_cast<std::int32_t>((r + 1) * 1009 + i * 31);
      expected[i] += data[r][i];
    }
  const Outcome outcome = all_reduce(world, recipe, data);
  ASSERT_TRUE(outcome.ended) << "nothing moves any more";
  for (std::uint32_t r = 0; r < recipe.world; ++r) {
    ASSERT_TRUE(outcome.statuses[r].ok()) << outcome.statuses[r].message;
    ASSERT_EQ(data[r], expected) << "rank " << r;
  }
}

std::vector<std::uint32_t> two_hosts(std::uint32_t world) {
  std::vector<std::uint32_t> hosts(world, 0);
  for (std::uint32_t r = world / 3; r < world; ++r) hosts[r] = 1;
  return hosts;
}

TEST(Engine, NoAlgorithmStallsHoweverSmallTheStreams) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.collective != Collective::all_reduce) continue;
    for (std::uint32_t size : {2u, 3u, 5u, 8u, 9u})
      for (std::size_t count : {0u, 1u, 7u, 3001u})
        for (std::size_t ring_bytes : {128u, 1024u, 65536u})
          expect_sums({entry.collective, entry.algorithm, size, 0, entry.pipelines ? 3u : 1u, two_hosts(size)},
                      ring_bytes, count);
  }
}

TEST(Engine, MoreMessagesThanTheCursorLooksAheadDoNotStall) {
  for (Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::flat})
    expect_sums(recipe_of(algorithm, 41), 256, 2000);
}

TEST(Engine, ExchangesWholeBuffersInPlaceWithoutStaging) {
  World world(2, 1024);
  std::vector<std::vector<std::int32_t>> data(2, std::vector<std::int32_t>(50000, 3));
  const Outcome outcome = all_reduce(world, recipe_of(Algorithm::recursive_doubling, 2), data);
  ASSERT_TRUE(outcome.ended);
  EXPECT_EQ(data[0][49999], 6);
  EXPECT_EQ(outcome.staging_bytes_peak, 0u);  // the receiver follows its own send through the buffer
}

TEST(Engine, StagesWhatItCannotPlaceYetAndCountsIt) {
  World world(41, 256);
  std::vector<std::vector<std::int32_t>> data(41, std::vector<std::int32_t>(2000, 1));
  const Outcome outcome = all_reduce(world, recipe_of(Algorithm::one_shot, 41), data);
  ASSERT_TRUE(outcome.ended);
  EXPECT_EQ(data[40][1999], 41);
  EXPECT_GT(outcome.staging_bytes_peak, 0u);
}

TEST(Engine, FindsAMismatchInTheFirstFrame) {
  World world(2, 4096);
  std::vector<std::vector<std::int32_t>> data = {std::vector<std::int32_t>(10), std::vector<std::int32_t>(11)};
  const Outcome outcome = all_reduce(world, recipe_of(Algorithm::recursive_doubling, 2), data);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(outcome.statuses[static_cast<std::size_t>(r)].code, ErrorCode::mismatch);
    EXPECT_EQ(outcome.statuses[static_cast<std::size_t>(r)].peer, 1 - r);
  }
  EXPECT_EQ(outcome.statuses[0].message,
            "all_reduce #1: rank 1 called all_reduce #1 (all_reduce of 11 i32, sum, by recursive_doubling), "
            "rank 0 called all_reduce #1 (all_reduce of 10 i32, sum, by recursive_doubling)");
}

TEST(Engine, EndsWhatIsUnderWayWithTheCauseAndRefusesWhatComesAfter) {
  World world(2, 4096);
  std::vector<std::int32_t> data(10);
  const Recipe recipe = recipe_of(Algorithm::ring, 2);
  auto first = std::make_shared<Completion>(), second = std::make_shared<Completion>();
  Request late = all_reduce_request(recipe, 0, data);
  late.deadline = Deadline::at(TimePoint{} + 1s);
  world.engine(0).submit(std::make_unique<Operation>(late, kEpoch, first));
  world.engine(0).progress();
  EXPECT_FALSE(first->done());
  world.engine(0).attend(TimePoint{} + 2s);
  ASSERT_TRUE(first->done());
  EXPECT_EQ(first->status().code, ErrorCode::timeout);
  EXPECT_EQ(first->status().peer, 1);
  world.engine(0).submit(std::make_unique<Operation>(all_reduce_request(recipe, 0, data), kEpoch, second));
  EXPECT_EQ(second->status().message, first->status().message);
}

TEST(Region, FindsTheFirstByteThatTwoRangesShare) {
  std::array<std::byte, 100> memory{};
  const auto at = [&](std::size_t first, std::size_t last) {
    return Region::Stretch{memory.data() + first, last - first};
  };
  const Region wrapped(at(80, 100), at(0, 20)), middle(at(10, 90), {}), apart(at(30, 40), {});
  EXPECT_EQ(first_conflict(wrapped, 0, middle, 0), 0u);    // byte 80 of memory
  EXPECT_EQ(first_conflict(wrapped, 10, middle, 0), 30u);  // 90 to 100 are free, then 0 to 10, then byte 10
  EXPECT_EQ(first_conflict(wrapped, 0, middle, 75), 5u);   // what is left of the other begins at byte 85
  EXPECT_EQ(first_conflict(wrapped, 0, middle, 80), 40u);
  EXPECT_EQ(first_conflict(wrapped, 0, apart, 0), 40u);
  EXPECT_EQ(first_conflict(middle, 0, wrapped, 0), 0u);
  EXPECT_EQ(first_conflict(middle, 10, wrapped, 0), 70u);
  EXPECT_EQ(first_conflict(middle, 0, wrapped, 30), 0u);
  EXPECT_EQ(first_conflict(middle, 0, wrapped, 35), 5u);
}

TEST(Frame, SurvivesTheWireAndRefusesNoise) {
  const FrameHeader header{
      0x0123456789abcdefu, 42, 8192, {Collective::reduce, DType::bf16, ReduceOp::avg, Algorithm::tree, 3, 5, 4096, 77}};
  const FrameBytes bytes = encode(header);
  Result<FrameHeader> back = decode_frame(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->call, header.call);
  EXPECT_EQ(back->epoch, header.epoch);
  EXPECT_EQ(back->sequence, header.sequence);
  EXPECT_EQ(back->payload_bytes, header.payload_bytes);
  FrameBytes noise = bytes;
  noise[0] = std::byte{'G'} ^ std::byte{1};
  EXPECT_EQ(decode_frame(noise).status().code, ErrorCode::protocol);
  noise = bytes;
  noise[5] = std::byte{200};
  EXPECT_EQ(decode_frame(noise).status().code, ErrorCode::protocol);
  EXPECT_EQ(decode_frame(std::span(bytes).first(20)).status().code, ErrorCode::protocol);
}

}  // namespace
}  // namespace gradsync
