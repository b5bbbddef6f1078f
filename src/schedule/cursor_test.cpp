#include "schedule/cursor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/random.hpp"
#include "schedule/emit.hpp"

namespace gradsync {
namespace {

// Hands out `size` steps at a time from a buffer that it overwrites, as a generator of windows does.
class WindowedSteps final : public StepSource {
 public:
  WindowedSteps(std::span<const Step> steps, std::size_t size) : steps_(steps), size_(size) {}
  std::span<const Step> window(std::uint64_t first) override {
    const std::size_t begin = std::min<std::size_t>(first, steps_.size()), end = std::min(begin + size_, steps_.size());
    window_.assign(steps_.begin() + static_cast<std::ptrdiff_t>(begin),
                   steps_.begin() + static_cast<std::ptrdiff_t>(end));
    return window_;
  }

 private:
  std::span<const Step> steps_;
  std::size_t size_;
  std::vector<Step> window_;
};

// The memory of a range, a bit a chunk; in place, input and output are one memory numbered by the message's chunks.
constexpr std::uint32_t kChunksMax = 12, kScratchCopiesMax = 3;
static_assert((2 + kScratchCopiesMax) * kChunksMax <= 64);

std::uint64_t places(const Shape& shape, Aliasing aliasing, Space space, Range range) {
  std::uint64_t found = 0;
  for (std::uint32_t i = 0; i < range.count; ++i) {
    const std::uint32_t chunk = shape.chunk(space, range.first, i);
    std::uint32_t bit = static_cast<std::uint32_t>(space) * kChunksMax + chunk;
    if (space != Space::scratch && aliasing == Aliasing::in_place) bit = shape.message_chunk(space, chunk);
    found |= std::uint64_t{1} << bit;
  }
  return found;
}

bool hazard_by_chunks(const Step& a, const Step& b, const Shape& shape, Aliasing aliasing) {
  const auto reads = [&](const Step& step) {
    std::uint64_t found = 0;
    if (step.verb == Verb::local) found = places(shape, aliasing, step.source_space, step.source_range());
    if (!step.writes() || step.mode == Mode::combine) found |= places(shape, aliasing, step.space, step.range());
    return found;
  };
  const auto writes = [&](const Step& step) {
    return step.writes() ? places(shape, aliasing, step.space, step.range()) : 0;
  };
  return ((writes(a) & (writes(b) | reads(b))) | (reads(a) & writes(b))) != 0;
}

struct Case {
  Shape shape;
  Aliasing aliasing = Aliasing::none;
  std::vector<Step> steps;
};

Case random_case(std::uint64_t seed) {
  Random random(seed);
  const auto below = [&](std::uint64_t bound) { return static_cast<std::uint32_t>(random.below(bound)); };
  Case made;
  Shape& shape = made.shape;
  shape.chunks = 1 + below(kChunksMax);
  shape.input.first = below(shape.chunks);
  shape.input.count = 1 + below(shape.chunks - shape.input.first);
  shape.output.first = below(shape.chunks);
  shape.output.count = 1 + below(shape.chunks - shape.output.first);
  shape.scratch_copies = 1 + below(kScratchCopiesMax);
  made.aliasing = below(2) ? Aliasing::in_place : Aliasing::none;
  Emit out(made.steps);
  const std::uint32_t peers = 1 + below(6), steps = below(120), width = 1 + below(shape.chunks);
  const auto place = [&](Space space, std::uint32_t count) {
    return Operand{space, {below(shape.size(space)), count}};
  };
  while (out.emitted() < steps) {
    const Space written = below(2) ? Space::output : Space::scratch, read = static_cast<Space>(below(3));
    const std::uint32_t count = 1 + below(std::min({shape.cycle(written), shape.cycle(read), width}));
    const std::uint32_t what = below(5);
    if (what == 0) out.send(below(peers), place(read, count));
    if (what == 1) out.recv(below(peers), place(written, count));
    if (what == 2) out.recv_reduce(below(peers), place(written, count));
    if (what == 3) out.copy(place(written, count), place(read, count));
    if (what == 4) out.reduce(place(written, count), place(read, count));
  }
  return made;
}

TEST(Cursor, FindsExactlyTheHazardsThatChunkSetsShow) {
  int hazards = 0, others = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Case made = random_case(seed);
    for (std::size_t j = 0; j < std::min<std::size_t>(made.steps.size(), 30); ++j)
      for (std::size_t i = 0; i < j; ++i) {
        const bool expected = hazard_by_chunks(made.steps[i], made.steps[j], made.shape, made.aliasing);
        ASSERT_EQ(hazard_between(made.steps[i], made.steps[j], made.shape, made.aliasing), expected)
            << "seed " << seed << ": " << to_text(made.steps[i]) << " before " << to_text(made.steps[j]);
        ++(expected ? hazards : others);
      }
  }
  EXPECT_GT(hazards, 10000);
  EXPECT_GT(others, 10000);
}

// What the cursor must say of a live step, from the set of unfinished ones alone.
void expect_exact(const Cursor& cursor, const Case& made, const std::set<std::uint64_t>& unfinished,
                  Cursor::Slot slot) {
  const std::uint64_t index = cursor.index(slot);
  ASSERT_EQ(cursor.step(slot), made.steps[index]);
  std::set<std::uint64_t> hazards, order, said_hazards, said_order;
  for (std::uint64_t earlier : unfinished) {
    if (earlier >= index) break;
    if (hazard_by_chunks(made.steps[earlier], made.steps[index], made.shape, made.aliasing)) hazards.insert(earlier);
    if (same_channel(made.steps[earlier], made.steps[index])) order.insert(earlier);
  }
  for (auto mask = cursor.hazards(slot); mask != 0; mask &= mask - 1)
    said_hazards.insert(cursor.index(Cursor::next_slot(mask)));
  for (auto mask = cursor.channel_order(slot); mask != 0; mask &= mask - 1)
    said_order.insert(cursor.index(Cursor::next_slot(mask)));
  ASSERT_EQ(said_hazards, hazards);
  ASSERT_EQ(said_order, order);
  ASSERT_EQ(cursor.ready(slot), hazards.empty() && order.empty());
}

// Completes ready steps in a random order, checking everything on the way; the order of the steps' numbers.
void walk(StepSource& source, const Case& made, std::uint32_t lookahead, std::uint64_t seed,
          std::vector<std::uint64_t>& order) {
  Random random(seed);
  Cursor cursor(source, made.shape, made.aliasing, lookahead);
  std::set<std::uint64_t> unfinished;
  for (std::uint64_t i = 0; i < made.steps.size(); ++i) unfinished.insert(i);
  while (!cursor.finished()) {
    std::vector<Cursor::Slot> live, ready;
    cursor.for_each_live([&](Cursor::Slot slot) { return live.push_back(slot), true; });
    ASSERT_FALSE(live.empty());
    ASSERT_EQ(cursor.index(live.front()), *unfinished.begin());
    const std::uint64_t end = std::min<std::uint64_t>(*unfinished.begin() + lookahead, made.steps.size());
    auto expected = unfinished.begin();
    for (Cursor::Slot slot : live) {  // all that are unfinished within the lookahead, oldest first
      ASSERT_EQ(cursor.index(slot), *expected++);
      ASSERT_NO_FATAL_FAILURE(expect_exact(cursor, made, unfinished, slot));
      if (cursor.ready(slot)) ready.push_back(slot);
    }
    ASSERT_TRUE(expected == unfinished.end() || *expected >= end);
    ASSERT_FALSE(ready.empty());
    const Cursor::Slot chosen = ready[random.below(ready.size())];
    order.push_back(cursor.index(chosen));
    unfinished.erase(cursor.index(chosen));
    cursor.complete(chosen);
  }
  ASSERT_TRUE(unfinished.empty());
}

TEST(Cursor, WalksInOrderWithALookaheadOfOne) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Case made = random_case(seed);
    HeldSteps source(made.steps);
    std::vector<std::uint64_t> order;
    ASSERT_NO_FATAL_FAILURE(walk(source, made, 1, seed, order));
    for (std::uint64_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
  }
}

TEST(Cursor, NeverRunsAHazardousPairOutOfOrder) {
  std::uint64_t overtakings = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case made = random_case(seed);
    const auto lookahead = static_cast<std::uint32_t>(2 + seed % (limits::lookahead_steps - 1));
    HeldSteps source(made.steps);
    std::vector<std::uint64_t> order;
    SCOPED_TRACE(testing::Message() << "seed " << seed << " lookahead " << lookahead);
    ASSERT_NO_FATAL_FAILURE(walk(source, made, lookahead, seed, order));
    ASSERT_EQ(order.size(), made.steps.size());
    for (std::size_t later = 0; later < order.size(); ++later)
      for (std::size_t first = 0; first < later; ++first) {
        if (order[first] < order[later]) continue;
        const Step &a = made.steps[order[later]], &b = made.steps[order[first]];  // b overtook a
        ASSERT_FALSE(hazard_by_chunks(a, b, made.shape, made.aliasing) || same_channel(a, b));
        ++overtakings;
      }
  }
  EXPECT_GT(overtakings, 1000u);
}

TEST(Cursor, WalksTheSameOverWindowsAsOverHeldSteps) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Case made = random_case(seed);
    HeldSteps held(made.steps);
    std::vector<std::uint64_t> expected;
    ASSERT_NO_FATAL_FAILURE(walk(held, made, limits::lookahead_steps, seed, expected));
    for (std::size_t size : {1u, 2u, 7u, 32u, 33u}) {
      WindowedSteps windowed(made.steps, size);
      std::vector<std::uint64_t> order;
      ASSERT_NO_FATAL_FAILURE(walk(windowed, made, limits::lookahead_steps, seed, order));
      ASSERT_EQ(order, expected) << "seed " << seed << " window " << size;
    }
  }
}

TEST(Cursor, KeepsALiveStepInItsSlotWhileOthersComeAndGo) {
  std::vector<Step> steps;
  Emit out(steps);
  const Shape shape{100, {0, 100}, {0, 100}, 0};
  for (std::uint32_t i = 0; i < 100; ++i) out.send(i, {Space::input, {i, 1}});
  HeldSteps source(steps);
  Cursor cursor(source, shape, Aliasing::none, 4);
  const Cursor::Slot oldest = Cursor::next_slot(cursor.live());
  for (std::uint32_t i = 1; i < 4; ++i) {  // the oldest holds the window: nothing new comes in
    cursor.for_each_live([&](Cursor::Slot slot) {
      if (slot == oldest) return true;
      cursor.complete(slot);
      return false;
    });
    EXPECT_EQ(std::popcount(cursor.live()), 4 - static_cast<int>(i));
    EXPECT_EQ(cursor.index(oldest), 0u);
    EXPECT_EQ(cursor.step(oldest), steps[0]);
  }
  cursor.complete(oldest);
  EXPECT_EQ(std::popcount(cursor.live()), 4);
  std::vector<std::uint64_t> indexes;
  cursor.for_each_live([&](Cursor::Slot slot) { return indexes.push_back(cursor.index(slot)), true; });
  EXPECT_EQ(indexes, (std::vector<std::uint64_t>{4, 5, 6, 7}));
}

TEST(Cursor, IsFinishedAtOnceWithoutSteps) {
  HeldSteps source({});
  const Cursor cursor(source, {1, {0, 1}, {0, 1}, 0}, Aliasing::none);
  EXPECT_TRUE(cursor.finished());
  EXPECT_EQ(cursor.live(), 0u);
}

TEST(Cursor, LetsAReceiveInPlaceWaitForTheSendOfTheSameMemory) {
  std::vector<Step> steps;
  Emit out(steps);
  out.send(1, {Space::input, {2, 1}});
  out.recv(1, {Space::output, {0, 1}});  // message chunk 2 as well
  const Shape shape{4, {0, 4}, {2, 1}, 0};
  HeldSteps held(steps), again(steps);
  const Cursor apart(held, shape, Aliasing::none), in_place(again, shape, Aliasing::in_place);
  EXPECT_TRUE(apart.ready(1));
  EXPECT_FALSE(in_place.ready(1));
}

}  // namespace
}  // namespace gradsync
