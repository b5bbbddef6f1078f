// A world of schedules, one a rank, that can be walked: generated from a recipe, or held (and perhaps mutated).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

class World {
 public:
  virtual ~World() = default;
  // What all ranks were asked for. A send and its recv differ: `recipe` is that of the rank itself.
  virtual const Recipe& recipe(std::uint32_t rank) const = 0;
  virtual std::uint32_t size() const = 0;
  virtual Shape shape(std::uint32_t rank) const = 0;
  // A new source of the rank's steps, valid while the world lives.
  virtual std::unique_ptr<StepSource> steps(std::uint32_t rank) const = 0;
};

// Every rank follows the same recipe. For a send or recv the recipe is that of every rank but `recipe.root`, which
// follows the opposite one; ranks other than these two take no part, so a world of 2 is the one to prove.
class RecipeWorld final : public World {
 public:
  // Copies the recipe, which must pass check(). `window_steps` are held of each rank at a time.
  explicit RecipeWorld(Recipe recipe, std::uint32_t window_steps = limits::window_steps);
  const Recipe& recipe(std::uint32_t rank) const override { return rank == opposite_rank_ ? opposite_ : recipe_; }
  std::uint32_t size() const override { return recipe_.world; }
  Shape shape(std::uint32_t rank) const override { return shape_of(recipe(rank), rank); }
  std::unique_ptr<StepSource> steps(std::uint32_t rank) const override {
    return std::make_unique<GeneratedSteps>(recipe(rank), rank, window_steps_);
  }

 private:
  Recipe recipe_, opposite_;
  std::uint32_t opposite_rank_;
  std::uint32_t window_steps_;
};

// Schedules in memory, borrowed; schedules[r] is rank r's.
class HeldWorld final : public World {
 public:
  explicit HeldWorld(std::span<const Schedule> schedules) : schedules_(schedules) {}
  const Recipe& recipe(std::uint32_t rank) const override { return schedules_[rank].recipe; }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(schedules_.size()); }
  Shape shape(std::uint32_t rank) const override { return schedules_[rank].shape; }
  std::unique_ptr<StepSource> steps(std::uint32_t rank) const override {
    return std::make_unique<HeldSteps>(schedules_[rank].steps);
  }

 private:
  std::span<const Schedule> schedules_;
};

// Every rank's schedule of a recipe, in memory.
std::vector<Schedule> hold(const World& world);

}  // namespace gradsync
