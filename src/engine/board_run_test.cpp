// All-reduces at the board: the results of every element type and operator, of every kind of memory, in any order of turns.
#include "engine/board_run.hpp"

#include <algorithm>

#include "engine/board_for_test.hpp"

namespace gradsync::board_test {
namespace {

// A greeting is two frames of 72 bytes to each other rank; a world that meets at its boards sends nothing else.
std::uint64_t greeting_bytes(std::uint32_t size) { return 2 * 72 * (size - 1); }

// Makes one call and checks every rank's result, to the last bit.
void call(World& world, const Plan& plan) {
  std::vector<Part> parts(world.size());
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    parts[r] = world.part(plan, r);
    fill(plan, r, parts[r].input);
    world.submit(plan, r, parts[r]);
  }
  ASSERT_TRUE(world.run()) << "nothing moves any more";
  const std::vector<std::byte> wanted = expected(plan, world.size());
  for (std::uint32_t r = 0; r < world.size(); ++r) {
    ASSERT_TRUE(parts[r].completion->done());
    ASSERT_TRUE(parts[r].completion->status().ok()) << parts[r].completion->status().message;
    ASSERT_TRUE(std::ranges::equal(parts[r].output, wanted)) << "rank " << r;
    if (plan.in_place) continue;
    std::vector<std::byte> brought(parts[r].input.size());
    fill(plan, r, brought);
    ASSERT_TRUE(std::ranges::equal(parts[r].input, brought)) << "the input of rank " << r << " was changed";
  }
}

std::string name(const Plan& plan, std::uint32_t size) {
  return fmt::format("{} {} {} of {} by {}, world {}, registered {:b}, {}, {} bytes on", name_of(plan.collective),
                     name_of(plan.dtype), name_of(plan.op), plan.count, name_of(plan.algorithm), size, plan.registered,
                     plan.in_place ? "in place" : "apart", plan.shift);
}

// No rank, all of them, or some.
std::uint32_t some_of(std::uint32_t size, std::uint64_t seed) {
  const auto all = static_cast<std::uint32_t>((std::uint64_t{1} << size) - 1);
  const std::uint64_t kind = mix64(seed) % 4;
  return kind == 0 ? 0 : kind == 1 ? all : static_cast<std::uint32_t>(mix64(seed + 99)) & all;
}

TEST(BoardRun, ReducesEveryElementTypeByEveryOperator) {
  for (const std::uint32_t size : {2u, 3u, 4u, 5u, 8u, 16u}) {
    World world(size, size);
    std::uint64_t seed = size;
    for (std::size_t d = 0; d < kDTypeCount; ++d)
      for (std::size_t o = 0; o < kReduceOpCount; ++o)
        for (const std::size_t count : {0u, 1u, 3u, 1021u}) {
          const auto dtype = static_cast<DType>(d);
          const auto op = static_cast<ReduceOp>(o);
          if (!supports(dtype, op)) continue;
          ++seed;
          const Algorithm algorithm = seed % 2 == 0 ? Algorithm::one_shot : Algorithm::two_shot;
          const Plan plan{Collective::all_reduce, dtype,        op, algorithm, count, 0, 0,
                          some_of(size, seed),    seed % 3 != 0};
          SCOPED_TRACE(name(plan, size));
          call(world, plan);
          if (::testing::Test::HasFatalFailure()) return;
        }
    for (std::uint32_t r = 0; r < size; ++r) EXPECT_EQ(world.sent(r), greeting_bytes(size)) << "over streams";
  }
}

TEST(BoardRun, ReducesMessagesAroundEveryLimitInEveryKindOfMemory) {
  std::uint64_t seed = 0;
  for (const std::uint32_t size : {2u, 3u, 5u})
    for (const std::uint64_t limit :
         {std::uint64_t{limits::board_inline_bytes}, std::uint64_t{limits::board_piece_bytes},
          3 * std::uint64_t{limits::board_piece_bytes}})
      for (const int around : {-1, 0, 1, 997}) {
        if (limit > limits::board_piece_bytes && size != 3) continue;
        World world(size, ++seed);
        for (const std::uint32_t registered : {0u, (1u << size) - 1, 1u, (1u << size) - 2}) {
          const bool in_place = mix64(seed) % 2 == 0;
          const DType dtype = limit == limits::board_inline_bytes || around == 1 ? DType::u8 : DType::f32;
          const auto bytes = static_cast<std::size_t>(static_cast<std::int64_t>(limit) + around);
          const Plan plan{Collective::all_reduce,
                          dtype,
                          ReduceOp::sum,
                          Algorithm::two_shot,
                          bytes / size_of(dtype),
                          0,
                          0,
                          registered,
                          in_place,
                          mix64(++seed) % 5000};
          SCOPED_TRACE(name(plan, size));
          call(world, plan);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
}

TEST(BoardRun, AOneShotOfOneByteMoreThanIsPostedGoesOverStreams) {
  for (const std::size_t bytes : {limits::board_inline_bytes, limits::board_inline_bytes + 1}) {
    World world(3, 5);
    call(world, {Collective::all_reduce, DType::u8, ReduceOp::max, Algorithm::one_shot, bytes});
    EXPECT_EQ(world.sent(1), bytes > limits::board_inline_bytes ? 2 * (bytes + 64) : greeting_bytes(3));
  }
}

TEST(BoardRun, BarriersAndEmptyCallsMeetThere) {
  World world(5, 6);
  for (int i = 0; i < 20; ++i) {
    call(world, {Collective::barrier, DType::u8, ReduceOp::sum, Algorithm::recursive_doubling, 0});
    call(world, {Collective::all_reduce, DType::f32, ReduceOp::sum, Algorithm::ring, 0});
  }
  EXPECT_EQ(world.sent(2), greeting_bytes(5));
}

// ---- beside worlds without boards

Counters without_staging(Counters counters) {
  counters.staging_bytes_peak = 0;
  return counters;
}

void expect_equal(const Counters& a, const Counters& b) {
  EXPECT_EQ(a.messages_sent, b.messages_sent);
  EXPECT_EQ(a.bytes_sent, b.bytes_sent);
  EXPECT_EQ(a.messages_received, b.messages_received);
  EXPECT_EQ(a.bytes_received, b.bytes_received);
  EXPECT_EQ(a.elements_reduced, b.elements_reduced);
  EXPECT_EQ(a.operations, b.operations);
}

// Any bits at all, NaN and infinities among them.
void fill_with_anything(std::span<std::byte> into, std::uint64_t seed) {
  for (std::size_t i = 0; i < into.size(); i += 8) {
    const std::uint64_t word = mix64(seed * 1000003 + i);
    std::memcpy(into.data() + i, &word, std::min<std::size_t>(8, into.size() - i));
  }
}

// What all ranks have after those calls, made at once and moved in the seed's order, and what they count.
struct Outcome {
  std::vector<std::vector<std::vector<std::byte>>> outputs;  // by rank, call
  std::vector<Counters> counters;
};
Outcome outcome_of(const std::vector<Plan>& plans, std::uint32_t size, std::uint64_t seed, bool boards) {
  std::vector<Faults> faults(size);
  for (Faults& one : faults) one.may = boards;
  World world(size, seed, faults);
  std::vector<std::vector<Part>> parts(size);
  for (std::uint32_t r = 0; r < size; ++r) parts[r].resize(plans.size());
  for (std::uint32_t r = 0; r < size; ++r)
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].collective == Collective::send && r != plans[i].root && r != plans[i].peer) continue;
      parts[r][i] = world.part(plans[i], r);
      fill_with_anything(parts[r][i].input, r * 7919 + i);
      world.submit_later(plans[i], r, parts[r][i]);
    }
  EXPECT_TRUE(world.run()) << "nothing moves any more";
  Outcome outcome;
  outcome.outputs.resize(size);
  for (std::uint32_t r = 0; r < size; ++r) {
    outcome.counters.push_back(without_staging(world.engine(r).counters()));
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const Part& part = parts[r][i];
      if (part.output.empty()) {
        outcome.outputs[r].emplace_back();
        continue;
      }
      EXPECT_TRUE(part.completion->done() && part.completion->status().ok()) << part.completion->status().message;
      outcome.outputs[r].emplace_back(part.output.begin(), part.output.end());
    }
  }
  return outcome;
}

void expect_equal(const Outcome& a, const Outcome& b, const std::vector<Plan>& plans) {
  for (std::size_t r = 0; r < a.outputs.size(); ++r) {
    expect_equal(a.counters[r], b.counters[r]);
    for (std::size_t i = 0; i < plans.size(); ++i)
      ASSERT_TRUE(a.outputs[r][i] == b.outputs[r][i])
          << "rank " << r << " call " << i << ": " << name(plans[i], static_cast<std::uint32_t>(a.outputs.size()));
  }
}

TEST(BoardRun, GivesTheBitsAndTheCountersOfTheScheduleOverStreams) {
  for (const std::uint32_t size : {2u, 3u, 4u, 7u, 16u}) {
    std::vector<Plan> plans;
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot})
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::boolean})
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::max}) {
          if (!supports(dtype, op)) continue;
          for (const std::size_t count : {1u, 513u})
            plans.push_back({Collective::all_reduce, dtype, op, algorithm, count, 0, 0, some_of(size, plans.size()),
                             plans.size() % 2 == 0});
        }
    plans.push_back(
        {Collective::all_reduce, DType::f32, ReduceOp::avg, Algorithm::two_shot, 700'001, 0, 0, 5, true, 4});
    plans.push_back({Collective::all_reduce, DType::bf16, ReduceOp::sum, Algorithm::two_shot, 600'001});
    SCOPED_TRACE(size);
    expect_equal(outcome_of(plans, size, size, true), outcome_of(plans, size, size + 1, false), plans);
  }
}

// A pair adds two numbers in either order to the same bits: a ring cuts the message otherwise, and sums the same.
TEST(BoardRun, OfTwoRanksGivesTheBitsOfARing) {
  Plan plan{Collective::all_reduce, DType::f32, ReduceOp::avg, Algorithm::two_shot, 300'007};
  const Outcome board = outcome_of({plan}, 2, 1, true);
  plan.algorithm = Algorithm::ring;
  const Outcome ring = outcome_of({plan}, 2, 2, true);
  EXPECT_TRUE(board.outputs == ring.outputs);
}

std::vector<Plan> random_plans(std::uint32_t size, std::uint64_t seed, std::size_t calls) {
  Random random(seed);
  std::vector<Plan> plans;
  while (plans.size() < calls) {
    Plan plan;
    const std::uint64_t kind = random.below(12);
    plan.dtype = static_cast<DType>(random.below(kDTypeCount));
    plan.op = static_cast<ReduceOp>(random.below(kReduceOpCount));
    const std::uint64_t magnitude = random.below(30) == 0 ? 22 : random.below(14);
    plan.count = static_cast<std::size_t>(random.below(std::uint64_t{1} << magnitude)) / size_of(plan.dtype);
    plan.registered = some_of(size, random.next());
    plan.in_place = random.below(2) == 0;
    plan.shift = static_cast<std::size_t>(random.below(3) == 0 ? random.below(4200) : 0);
    if (kind < 6) {
      if (plan.count * 16 < limits::board_inline_bytes && random.below(2) == 0) plan.algorithm = Algorithm::one_shot;
    } else if (kind == 6) {
      plan = {Collective::barrier, DType::u8, ReduceOp::sum, Algorithm::recursive_doubling, 0};
    } else if (kind == 7) {
      plan.algorithm = Algorithm::ring;
    } else if (kind == 8) {
      plan.collective = Collective::broadcast, plan.algorithm = Algorithm::tree;
      plan.root = static_cast<std::uint32_t>(random.below(size)), plan.op = ReduceOp::sum, plan.in_place = true;
    } else if (kind == 9) {
      plan.collective = Collective::all_gather, plan.algorithm = Algorithm::ring, plan.op = ReduceOp::sum;
      plan.in_place = false;
    } else {
      plan.collective = Collective::send, plan.algorithm = Algorithm::direct, plan.op = ReduceOp::sum;
      plan.root = static_cast<std::uint32_t>(random.below(size));
      plan.peer = (plan.root + 1 + static_cast<std::uint32_t>(random.below(size - 1))) % size;
      plan.in_place = true;
    }
    if (plan.collective == Collective::all_reduce && !supports(plan.dtype, plan.op)) continue;
    plans.push_back(plan);
  }
  return plans;
}

TEST(BoardRun, LongRandomSequencesOfCallsGiveWhatTheyGiveOverStreams) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const auto size = static_cast<std::uint32_t>(2 + mix64(seed) % (seed % 8 == 0 ? 15 : 4));
    SCOPED_TRACE(fmt::format("seed {} world {}", seed, size));
    const std::vector<Plan> plans = random_plans(size, seed, 80);
    expect_equal(outcome_of(plans, size, seed, true), outcome_of(plans, size, seed + 500, false), plans);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace gradsync::board_test
