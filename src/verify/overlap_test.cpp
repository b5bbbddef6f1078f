// A proof walks every rank in order. That it also speaks for the executor, which lets steps overtake each other, rests
// on the cursor: whatever it calls ready must not change the result. Here steps run in random orders, on real numbers.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "schedule/cursor.hpp"
#include "verify/interpreter_for_test.hpp"
#include "verify/table.hpp"

namespace gradsync {
namespace {

class Shuffled final : public interpreter::Run {
 public:
  Shuffled(const std::vector<Schedule>& world, Aliasing aliasing, std::uint32_t lookahead, std::uint64_t seed)
      : Run(world, aliasing == Aliasing::in_place, seed),
        random_(seed) {
    for (const Schedule& schedule : world) {
      sources_.push_back(std::make_unique<HeldSteps>(schedule.steps));
      cursors_.emplace_back(*sources_.back(), schedule.shape, aliasing, lookahead);
    }
  }
  std::uint64_t overtaken() const { return overtaken_; }

 private:
  // Any of the rank's ready steps that can run.
  bool step(std::uint32_t r) override {
    Cursor& cursor = cursors_[r];
    std::vector<Cursor::Slot> ready;
    std::optional<Cursor::Slot> oldest;
    cursor.for_each_live([&](Cursor::Slot slot) {
      if (!oldest) oldest = slot;
      if (cursor.ready(slot)) ready.push_back(slot);
      return true;
    });
    for (; !faulty() && !ready.empty(); ready.pop_back()) {
      std::swap(ready.back(), ready[static_cast<std::size_t>(random_.below(ready.size()))]);
      if (!execute(r, cursor.step(ready.back()))) continue;
      if (ready.back() != *oldest) ++overtaken_;
      cursor.complete(ready.back());
      count_step(r);
      return true;
    }
    return false;
  }

  Random random_;
  std::vector<std::unique_ptr<HeldSteps>> sources_;
  std::vector<Cursor> cursors_;
  std::uint64_t overtaken_ = 0;
};

TEST(Overlap, InAnyOrderThatTheCursorAllowsLeavesTheResult) {
  std::uint64_t seed = 1, overtaken = 0;
  for (const CatalogueEntry& entry : catalogue())
    for (std::uint32_t ranks = 1; ranks <= 9; ++ranks) {
      if ((entry.collective == Collective::send || entry.collective == Collective::recv) && ranks != 2) continue;
      for (const Recipe& recipe : variants_of(entry, ranks)) {
        const std::vector<Schedule> world = hold(RecipeWorld(recipe));
        for (const Aliasing aliasing : {Aliasing::none, Aliasing::in_place}) {
          if (aliasing == Aliasing::in_place && !allows_in_place(entry.collective)) continue;
          for (std::uint32_t lookahead : {3u, limits::lookahead_steps}) {
            Shuffled run(world, aliasing, lookahead, ++seed);
            EXPECT_EQ(run.fault(), "") << name_of(recipe.collective) << ' ' << name_of(recipe.algorithm) << " of "
                                       << ranks << (aliasing == Aliasing::in_place ? " in place" : "") << ", seed "
                                       << seed;
            overtaken += run.overtaken();
          }
        }
      }
    }
  EXPECT_GT(overtaken, 10'000u);
}

}  // namespace
}  // namespace gradsync
