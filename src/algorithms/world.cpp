#include "algorithms/world.hpp"

namespace gradsync {
namespace {

constexpr std::uint32_t kNobody = 0xffffffffu;

bool is_point_to_point(Collective c) { return c == Collective::send || c == Collective::recv; }

Recipe opposite_of(const Recipe& recipe) {
  Recipe opposite = recipe;
  if (!is_point_to_point(recipe.collective)) return opposite;
  opposite.collective = recipe.collective == Collective::send ? Collective::recv : Collective::send;
  opposite.root = recipe.root == 0 ? recipe.world - 1 : 0;
  return opposite;
}

}  // namespace

RecipeWorld::RecipeWorld(Recipe recipe, std::uint32_t window_steps)
    : recipe_(std::move(recipe)),
      opposite_(opposite_of(recipe_)),
      opposite_rank_(is_point_to_point(recipe_.collective) && recipe_.world > 1 ? recipe_.root : kNobody),
      window_steps_(window_steps) {
  GRADSYNC_CHECK(check(recipe_).ok());
  GRADSYNC_CHECK(!is_point_to_point(recipe_.collective) || recipe_.world <= 2);
}

std::vector<Schedule> hold(const World& world) {
  std::vector<Schedule> schedules;
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    schedules.push_back({world.recipe(rank), rank, world.shape(rank), {}});
    std::vector<Step>& steps = schedules.back().steps;
    const auto source = world.steps(rank);
    for (auto window = source->window(0); !window.empty(); window = source->window(steps.size()))
      steps.insert(steps.end(), window.begin(), window.end());
  }
  return schedules;
}

}  // namespace gradsync
