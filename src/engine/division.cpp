#include "engine/division.hpp"

namespace gradsync {
namespace {

// Marks the step's chunks as written; whether the step is the last to write them, given that all later ones are marked.
bool writes_last(const Step& step, const Shape& shape, std::vector<bool>& written) {
  if (!step.writes() || step.space != Space::output || step.count == 0) return false;
  std::uint32_t fresh = 0;
  for (std::uint32_t i = 0; i < step.count; ++i) {
    const std::uint32_t chunk = shape.chunk(Space::output, step.first, i);
    fresh += written[chunk] ? 0u : 1u;
    written[chunk] = true;
  }
  GRADSYNC_CHECK((fresh == 0 || fresh == step.count) && "a step writes all of its chunks last or none");
  return fresh != 0;
}

}  // namespace

std::vector<bool> dividing_steps(const Schedule& schedule) {
  std::vector<bool> divides(schedule.steps.size()), written(schedule.shape.output.count);
  for (std::size_t i = schedule.steps.size(); i-- > 0;) {
    const Step& step = schedule.steps[i];
    if (!writes_last(step, schedule.shape, written)) continue;
    const bool comes_divided =
        schedule.recipe.collective == Collective::all_reduce && step.verb == Verb::recv && step.mode == Mode::assign;
    divides[i] = !comes_divided;
  }
  return divides;
}

}  // namespace gradsync
