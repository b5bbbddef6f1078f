// Boards that cannot be had, ranks that call something else, come late, fail or leave.
#include <poll.h>

#include <algorithm>

#include "engine/board_for_test.hpp"

namespace gradsync::board_test {
namespace {

constexpr std::uint64_t kGreetingFrame = 72;

Plan all_reduce_of(std::size_t count, std::uint32_t registered = 0) {
  return {Collective::all_reduce, DType::f32, ReduceOp::sum, Algorithm::two_shot, count, 0, 0, registered};
}

std::vector<Part> submit_all(World& world, const Plan& plan) {
  std::vector<Part> parts(world.size());
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    parts[r] = world.part(plan, r);
    fill(plan, r, parts[r].input);
  }
  for (std::uint32_t r = 0; r < world.size(); ++r) world.submit(plan, r, parts[r]);
  return parts;
}

void call(World& world, const Plan& plan) {
  const std::vector<Part> parts = submit_all(world, plan);
  ASSERT_TRUE(world.run()) << "nothing moves any more";
  for (const Part& part : parts) {
    ASSERT_TRUE(part.completion->status().ok()) << part.completion->status().message;
    ASSERT_TRUE(std::ranges::equal(part.output, expected(plan, world.size())));
  }
}

// Some turns, whatever comes of them.
void turns(World& world, int count) {
  for (int i = 0; i < count; ++i)
    for (std::uint32_t r = 0; r < world.size(); ++r) world.engine(r).progress();
}

// ---- no boards

void expect_streams(std::vector<Faults> faults, std::uint64_t seed) {
  const auto size = static_cast<std::uint32_t>(faults.size());
  World world(size, seed, std::move(faults));
  const Plan plan = all_reduce_of(1000);
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t before = world.sent(0);
    call(world, plan);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_GE(world.sent(0) - before, 2 * (size - 1) * (plan.count / size) * sizeof(float)) << "not over streams";
  }
}

TEST(BoardLife, WhereOneRanksBoardCannotBeMadeShownOrSeenAllUseStreams) {
  for (const std::uint32_t size : {2u, 3u, 5u})
    for (std::uint32_t bad = 0; bad < size; ++bad)
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(fmt::format("rank {} of {}, seed {}", bad, size, seed));
        const int other = static_cast<int>((bad + 1) % size);
        std::vector<Faults> no_board(size), hidden(size), unseen(size);
        no_board[bad].makes = false;
        hidden[bad].hides_from = other;
        unseen[bad].cannot_see = other;
        for (auto* faults : {&no_board, &hidden, &unseen}) {
          for (Faults& one : *faults) one.takes_at_a_time = seed == 2 ? 5 : seed == 3 ? 67 : ~std::uint64_t{0};
          expect_streams(*faults, seed);
          if (HasFatalFailure()) return;
        }
      }
}

TEST(BoardLife, NobodyAsksForBoardsWhereAllKnowThatThereAreNone) {
  std::vector<Faults> faults(3);
  for (Faults& one : faults) one.may = false;
  World world(3, 1, faults);
  call(world, {Collective::barrier, DType::u8, ReduceOp::sum, Algorithm::recursive_doubling, 0});
  const std::uint64_t barrier = world.sent(0);
  call(world, {Collective::barrier, DType::u8, ReduceOp::sum, Algorithm::recursive_doubling, 0});
  EXPECT_EQ(world.sent(0), 2 * barrier);
}

TEST(BoardLife, AGreetingThatLeavesInPartsIsHeard) {
  for (const std::uint64_t bytes : {1u, 7u, 64u, 71u}) {
    std::vector<Faults> faults(3);
    for (Faults& one : faults) one.takes_at_a_time = bytes;
    World world(3, bytes, faults);
    for (int i = 0; i < 3; ++i) call(world, all_reduce_of(100));
    EXPECT_EQ(world.sent(0), 2 * 2 * kGreetingFrame);
  }
}

// ---- mismatches

void expect_mismatch(const std::vector<Plan>& plans, std::uint64_t calls_before, const std::string& one,
                     const std::string& other) {
  const auto size = static_cast<std::uint32_t>(plans.size());
  World world(size, 3);
  for (std::uint64_t i = 0; i < calls_before; ++i) call(world, all_reduce_of(10 + i * 100'000));
  std::vector<Part> parts(size);
  for (std::uint32_t r = 0; r < size; ++r) parts[r] = world.part(plans[r], r), world.submit(plans[r], r, parts[r]);
  for (int i = 0; i < 1000; ++i)
    for (std::uint32_t r = 0; r < size; ++r)
      if (!world.engine(r).progress()) world.engine(r).attend(TimePoint());
  std::uint32_t heard = 0;
  for (std::uint32_t r = 0; r < size; ++r) {
    if (parts[r].completion->done()) ++heard;
    // Who is at the board sends nothing to who is not: the first to see it tells the others.
    else if (std::ranges::any_of(plans, [](const Plan& p) { return p.algorithm == Algorithm::ring; })) continue;
    ASSERT_TRUE(parts[r].completion->done()) << "rank " << r << " hears of nothing";
    const Status& status = parts[r].completion->status();
    EXPECT_EQ(status.code, ErrorCode::mismatch) << status.message;
    EXPECT_NE(status.message.find(one), std::string::npos) << status.message;
    EXPECT_NE(status.message.find(other), std::string::npos) << status.message;
  }
  EXPECT_GT(heard, 0u);
}

TEST(BoardLife, RanksThatCallDifferentThingsAllHearOfItAtOnce) {
  const Plan usual = all_reduce_of(1000);
  Plan count = usual, dtype = usual, op = usual, way = usual, small = usual, streams = usual;
  count.count = 1001;
  dtype.dtype = DType::i32;
  op.op = ReduceOp::max;
  way.algorithm = Algorithm::one_shot;
  small.algorithm = Algorithm::one_shot, small.count = 1;
  streams.algorithm = Algorithm::ring;
  const Plan barrier{Collective::barrier, DType::u8, ReduceOp::sum, Algorithm::recursive_doubling, 0};
  const std::vector<std::pair<Plan, std::string>> others = {
      {count, "all_reduce of 1001 f32, sum, by two_shot"}, {dtype, "all_reduce of 1000 i32, sum, by two_shot"},
      {op, "all_reduce of 1000 f32, max, by two_shot"},    {way, "all_reduce of 1000 f32, sum, by one_shot"},
      {small, "all_reduce of 1 f32, sum, by one_shot"},    {streams, "all_reduce of 1000 f32, sum, by ring"},
      {barrier, "barrier by recursive_doubling"}};
  for (const auto& [other, words] : others)
    for (const std::uint32_t size : {2u, 3u})
      for (std::uint32_t odd = 0; odd < size; ++odd)
        for (const std::uint64_t before : {0u, 3u}) {
          SCOPED_TRACE(fmt::format("rank {} of {} calls {} after {} calls", odd, size, words, before));
          std::vector<Plan> plans(size, usual);
          plans[odd] = other;
          expect_mismatch(plans, before, "all_reduce of 1000 f32, sum, by two_shot", words);
          if (HasFatalFailure()) return;
        }
}

// ---- waiting

TEST(BoardLife, ADeadlineSaysWhomTheBoardWaitsForAndForWhat) {
  const Deadline passed = Deadline::at(TimePoint() + 1ms);
  const auto words_of = [&](World& world, std::uint32_t rank, Part& part) {
    for (int i = 0; i < 10; ++i) world.engine(rank).progress();
    world.engine(rank).attend(TimePoint() + 2ms);
    EXPECT_TRUE(part.completion->done());
    EXPECT_EQ(part.completion->status().code, ErrorCode::timeout);
    return part.completion->status();
  };
  const Plan plan = all_reduce_of(3 * limits::board_piece_bytes / sizeof(float));
  for (const bool greeted : {false, true}) {
    World world(3, 1);
    if (greeted) call(world, all_reduce_of(1));
    std::vector<Part> parts(3);
    for (std::uint32_t r : {0u, 2u}) parts[r] = world.part(plan, r), world.submit(plan, r, parts[r], passed);
    for (int i = 0; i < 10; ++i) world.engine(2).progress(), world.engine(0).progress();
    const Status status = words_of(world, 0, parts[0]);
    EXPECT_EQ(status.peer, 1);
    EXPECT_NE(status.message.find("waiting for rank 1 (loopback) (rank 1 to join of all_reduce #"), std::string::npos)
        << status.message;
  }
  World world(2, 1);
  call(world, all_reduce_of(1));
  std::vector<Part> parts(2);
  for (std::uint32_t r : {0u, 1u}) parts[r] = world.part(plan, r), world.submit(plan, r, parts[r], passed);
  world.engine(1).progress();  // posts its first piece, and no more
  const Status status = words_of(world, 0, parts[0]);
  EXPECT_NE(status.message.find("rank 1 to reduce its part, piece 1 of 3"), std::string::npos) << status.message;
}

// Rank 2 comes in the moment in which rank 0 has said that it sleeps and its transport has not: nobody will ring again.
TEST(BoardLife, WhoRingsBeforeTheTransportHearsItIsNotMissed) {
  World world(3, 1);
  call(world, all_reduce_of(1));
  const Plan plan = all_reduce_of(10);
  std::vector<Part> parts(3);
  for (std::uint32_t r = 0; r < 3; ++r) parts[r] = world.part(plan, r), fill(plan, r, parts[r].input);
  const auto come = [&](std::uint32_t rank) {
    world.submit(plan, rank, parts[rank]);
    for (int i = 0; i < 5; ++i) world.engine(rank).progress();
  };
  come(0);
  const auto may_sleep = [&] { return world.engine(0).arm(); };
  while (!may_sleep()) world.engine(0).disarm();  // what there was to hear
  world.engine(0).disarm();
  world.faults(0).while_arming = [&] { come(2); };
  const bool sleeps = may_sleep();
  come(1);
  pollfd watch{world.engine(0).transport().descriptor(), POLLIN, 0};
  EXPECT_TRUE(!sleeps || ::poll(&watch, 1, 0) == 1) << "it sleeps, and nobody woke it";
  world.engine(0).disarm();
  ASSERT_TRUE(world.run());
  EXPECT_TRUE(std::ranges::equal(parts[0].output, expected(plan, 3)));
}

TEST(BoardLife, AnArmedRankIsWokenByEveryStepItWaitsFor) {
  for (const std::uint32_t registered : {0u, 3u}) {
    World world(2, 1);
    call(world, all_reduce_of(1));
    const std::vector<Part> parts = submit_all(world, all_reduce_of(600'000, registered));
    int slept = 0;
    for (int i = 0; i < 1000 && !world.engine(0).idle(); ++i) {
      if (world.engine(0).progress()) continue;
      if (world.engine(0).arm()) {
        ++slept;
        pollfd watch{world.engine(0).transport().descriptor(), POLLIN, 0};
        for (int k = 0; k < 1000 && ::poll(&watch, 1, 0) == 0; ++k) world.engine(1).progress();
        EXPECT_EQ(::poll(&watch, 1, 0), 1) << "rank 1 went on and did not wake rank 0";
      }
      world.engine(0).disarm();
    }
    EXPECT_GT(slept, 0);
    EXPECT_TRUE(world.engine(0).idle());
    ASSERT_TRUE(world.run());
    EXPECT_TRUE(parts[0].completion->status().ok());
  }
}

// ---- leaving

TEST(BoardLife, ARankThatLeavesAfterItsLastCallHarmsNobody) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{300'000}})
    for (const std::uint32_t registered : {0u, 7u, 2u})
      for (const std::uint32_t leaver : {0u, 1u, 2u})
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
          World world(3, seed);
          const Plan plan = all_reduce_of(count, registered);
          const std::vector<Part> parts = submit_all(world, plan);
          for (int i = 0; i < 100'000 && !parts[leaver].completion->done(); ++i)
            world.engine(static_cast<std::uint32_t>(world.turns().below(3))).progress();
          ASSERT_TRUE(parts[leaver].completion->done());
          world.leave(leaver);
          ASSERT_TRUE(world.run());
          for (const Part& part : parts) {
            ASSERT_TRUE(part.completion->status().ok()) << part.completion->status().message;
            EXPECT_TRUE(std::ranges::equal(part.output, expected(plan, 3)));
          }
        }
}

// From then on its memory is its caller's, and the others fail for it by name.
TEST(BoardLife, ARankThatFailsHasItsMemoryToItself) {
  for (int before = 0; before < 40; ++before) {
    World world(3, 1);
    call(world, all_reduce_of(1));
    const Plan plan = all_reduce_of(900'001, 7);
    std::vector<Part> parts = submit_all(world, plan);
    turns(world, before / 3);
    for (int i = 0; i < before % 3; ++i) world.engine(static_cast<std::uint32_t>(i)).progress();
    if (parts[1].completion->done()) break;
    world.engine(1).fail(failure(ErrorCode::aborted, "enough"));
    std::ranges::fill(parts[1].output, std::byte{0x5a});
    turns(world, 50);
    for (std::uint32_t r : {0u, 2u}) world.engine(r).attend(TimePoint());
    for (const std::byte byte : parts[1].output) ASSERT_EQ(byte, std::byte{0x5a}) << "written to after it had failed";
    for (std::uint32_t r : {0u, 2u}) {
      if (parts[r].completion->done()) {
        EXPECT_TRUE(std::ranges::equal(parts[r].output, expected(plan, 3)));
        continue;
      }
      const Status suspicion = world.engine(r).suspicion();
      if (suspicion.ok()) continue;  // it waits for rank 1, which has not left
      EXPECT_EQ(suspicion.code, ErrorCode::peer_lost);
      EXPECT_EQ(suspicion.message, "all_reduce #2: rank 1 (loopback) has ended its operation");
    }
  }
}

TEST(BoardLife, ALostRankIsNamedWhateverWasWaitedForFirst) {
  for (const bool greeted : {false, true}) {
    World world(3, 1);
    if (greeted) call(world, all_reduce_of(1));
    const Plan plan = all_reduce_of(10);
    Part part = world.part(plan, 0);
    world.submit(plan, 0, part);
    turns(world, 5);
    world.leave(2);
    for (int i = 0; i < 5; ++i) world.engine(0).progress(), world.engine(0).attend(TimePoint());
    EXPECT_EQ(world.engine(0).suspicion().code, ErrorCode::peer_lost);
    EXPECT_EQ(world.engine(0).suspicion().peer, 2);
  }
}

}  // namespace
}  // namespace gradsync::board_test
