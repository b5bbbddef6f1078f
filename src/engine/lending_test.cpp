// Engines whose messages are lent: every algorithm, and what a window of zero could stall. Driven in turn by one thread.
#include <gtest/gtest.h>

#include "algorithms/catalogue.hpp"
#include "engine/engine.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"
#include "transport/pages_for_test.hpp"

namespace gradsync {
namespace {

using testing::Book;

using namespace std::chrono_literals;

constexpr std::uint64_t kEpoch = 78;

class World {
 public:
  explicit World(std::uint32_t size) {
    auto fabric = make_loopback_fabric(size, 4096);
    for (std::uint32_t r = 0; r < size; ++r)
      engines_.push_back(std::make_unique<Engine>(loopback_transport(fabric, r, book_)));
  }
  Engine& engine(std::uint32_t rank) { return *engines_[rank]; }
  Book& book() { return *book_; }

  // Turns until all are idle; a pass in which nothing moves takes a millisecond. False if a second brings nothing.
  bool run() {
    for (int still = 0; still < 1000;) {
      bool moved = false, idle = true;
      for (auto& engine : engines_) moved = engine->progress() || moved;
      if (!moved) now_ += 1ms;
      if (!moved)
        for (auto& engine : engines_) moved = engine->attend(now_) || moved;
      for (auto& engine : engines_) idle = idle && engine->idle();
      if (idle) return true;
      still = moved ? 0 : still + 1;
    }
    return false;
  }
  TimePoint now() const { return now_; }

 private:
  std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::vector<std::unique_ptr<Engine>> engines_;
  TimePoint now_;
};

Request request_of(const Schedule& schedule, ReduceOp op, std::span<float> data) {
  Request request;
  request.sequence = 1;
  request.schedule = std::make_shared<const Schedule>(schedule);
  const Recipe& recipe = schedule.recipe;
  request.call = {recipe.collective, DType::f32, op, recipe.algorithm, 0, recipe.segments, data.size(), 0};
  request.input = request.output = data.data();
  request.input_layout = request.output_layout = layout_for(recipe, schedule.shape, data.size());
  request.deadline = Deadline::at(TimePoint::max());
  request.contributions = recipe.world;
  return request;
}

struct Ran {
  bool ended = false;
  std::uint64_t staging_bytes_peak = 0;
};

Ran run_all(World& world, const std::vector<Schedule>& schedules, ReduceOp op, std::vector<std::span<float>> data) {
  std::vector<std::shared_ptr<Completion>> completions;
  for (std::uint32_t r = 0; r < schedules.size(); ++r) {
    completions.push_back(std::make_shared<Completion>());
    world.engine(r).submit(
        std::make_unique<Operation>(request_of(schedules[r], op, data[r]), kEpoch, completions.back()));
  }
  Ran ran{world.run()};
  for (std::uint32_t r = 0; r < schedules.size(); ++r) {
    EXPECT_TRUE(completions[r]->done() && completions[r]->status().ok()) << "rank " << r;
    ran.staging_bytes_peak = std::max(ran.staging_bytes_peak, world.engine(r).counters().staging_bytes_peak);
  }
  return ran;
}

std::vector<std::span<float>> whole_numbers(World& world, std::uint32_t size, std::size_t count) {
  std::vector<std::span<float>> data;
  for (std::uint32_t r = 0; r < size; ++r) {
    data.push_back(world.book().allocate_floats(count));
    for (std::size_t i = 0; i < count; ++i) data[r][i] = static_cast<float>((r + 1) * (i % 1000 + 1));
  }
  return data;
}

// Any rank's chunk is long enough to be lent.
std::size_t count_for(std::uint32_t size) { return size * limits::loan_bytes_min / sizeof(float) + 17 * size + 1; }

void expect_averages(Algorithm algorithm, std::uint32_t size, std::size_t count) {
  SCOPED_TRACE(fmt::format("{} world {}", name_of(algorithm), size));
  World world(size);
  const auto data = whole_numbers(world, size, count);
  std::vector<Schedule> schedules;
  for (std::uint32_t r = 0; r < size; ++r)
    schedules.push_back(make_schedule({Collective::all_reduce, algorithm, size, 0, 1, {}}, r));
  ASSERT_TRUE(run_all(world, schedules, ReduceOp::avg, data).ended) << "nothing moves any more";
  EXPECT_GT(world.book().found(), 0u) << "nothing was lent";
  for (std::uint32_t r = 0; r < size; ++r)
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = static_cast<float>(size * (size + 1) / 2 * (i % 1000 + 1));
      ASSERT_EQ(data[r][i], sum / static_cast<float>(size)) << "rank " << r << " element " << i;
    }
}

TEST(EngineLending, AveragesByEveryAlgorithmWithoutAWindow) {
  for (const CatalogueEntry& entry : catalogue())
    if (entry.collective == Collective::all_reduce)
      for (std::uint32_t size : {2u, 3u, 5u, 8u, 9u}) expect_averages(entry.algorithm, size, count_for(size));
}

TEST(EngineLending, GoesBeyondTheLookahead) {
  expect_averages(Algorithm::two_shot, 34, count_for(34));
  expect_averages(Algorithm::one_shot, 41, count_for(1));
}

TEST(EngineLending, CopiesWhereTwoRanksOverwriteWhatTheySend) {
  World world(2);
  const auto data = whole_numbers(world, 2, 300000);
  std::vector<Schedule> schedules;
  for (std::uint32_t r = 0; r < 2; ++r)
    schedules.push_back(make_schedule({Collective::all_reduce, Algorithm::recursive_doubling, 2, 0, 1, {}}, r));
  const Ran ran = run_all(world, schedules, ReduceOp::sum, data);
  ASSERT_TRUE(ran.ended);
  EXPECT_EQ(ran.staging_bytes_peak, 0u);
  EXPECT_EQ(data[1][999], 3000.0f);
}

TEST(EngineLending, StagesWhatIsHeldBackSoThatTheSendersGoOn) {
  World world(3);
  const std::size_t count = 3 * limits::loan_bytes_min;
  const auto data = whole_numbers(world, 3, count);
  // 0 lends X to 1, which first waits for 2, which waits for 0, which first overwrites X.
  std::vector<Schedule> schedules(3);
  for (std::uint32_t r = 0; r < 3; ++r) {
    schedules[r].recipe = {Collective::all_reduce, Algorithm::ring, 3, 0, 1, {}};
    schedules[r].rank = r;
    schedules[r].shape = {2, {0, 2}, {0, 2}, 0};
  }
  const Operand x{Space::output, {0, 1}}, y{Space::output, {1, 1}};
  Emit zero(schedules[0].steps), one(schedules[1].steps), two(schedules[2].steps);
  zero.send(1, x);
  two.send(0, y);
  zero.recv(2, y);
  zero.recv_reduce(2, x);
  two.send(0, x);
  zero.send(2, x);
  two.recv(0, x);
  two.send(1, x);
  one.recv_reduce(2, y);
  one.recv_reduce(0, y);
  const Ran ran = run_all(world, schedules, ReduceOp::sum, data);
  ASSERT_TRUE(ran.ended) << "nothing moves any more";
  EXPECT_GT(ran.staging_bytes_peak, 0u);
  EXPECT_GE(world.now(), TimePoint{} + limits::held_back_patience);
}

}  // namespace
}  // namespace gradsync
