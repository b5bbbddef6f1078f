#include "verify/mutate.hpp"

#include <array>

#include "base/status.hpp"

namespace gradsync {
namespace {

std::size_t draw(Random& random, std::size_t bound) { return static_cast<std::size_t>(random.below(bound)); }

bool swap_with_another(std::vector<Step>& steps, std::size_t at, Random& random) {
  const std::size_t other = draw(random, steps.size());
  if (steps[other] == steps[at]) return false;
  std::swap(steps[other], steps[at]);
  return true;
}

bool redirect(Step& step, std::uint32_t rank, std::uint32_t world, Random& random) {
  if (step.verb == Verb::local || world < 3) return false;
  const auto peer = static_cast<std::uint32_t>(random.below(world));
  if (peer == rank || peer == step.peer) return false;
  step.peer = peer;
  return true;
}

bool flip_mode(Step& step) {
  if (step.verb == Verb::send) return false;
  step.mode = step.mode == Mode::assign ? Mode::combine : Mode::assign;
  return true;
}

// Another first chunk, of the range or of a local step's source.
bool shift(Step& step, const Shape& shape, Random& random) {
  const bool source = step.verb == Verb::local && random.below(2) == 0;
  std::uint32_t& first = source ? step.source : step.first;
  const std::uint32_t size = shape.size(source ? step.source_space : step.space);
  if (size < 2) return false;
  first = static_cast<std::uint32_t>((first + 1 + random.below(size - 1)) % size);
  return true;
}

bool resize(Step& step, const Shape& shape, Random& random) {
  if (step.count > 1 && random.below(2) == 0) return --step.count, true;
  if (step.count >= shape.cycle(step.space)) return false;
  if (step.verb == Verb::local && step.count >= shape.cycle(step.source_space)) return false;
  return ++step.count, true;
}

bool apply(Schedule& schedule, MutationKind kind, std::size_t at, Random& random) {
  std::vector<Step>& steps = schedule.steps;
  const auto place = steps.begin() + static_cast<std::ptrdiff_t>(at);
  switch (kind) {
    case MutationKind::drop: return steps.erase(place), true;
    case MutationKind::duplicate: return steps.insert(place, Step(*place)), true;
    case MutationKind::swap: return swap_with_another(steps, at, random);
    case MutationKind::redirect: return redirect(*place, schedule.rank, schedule.recipe.world, random);
    case MutationKind::mode: return flip_mode(*place);
    case MutationKind::shift: return shift(*place, schedule.shape, random);
    case MutationKind::resize: return resize(*place, schedule.shape, random);
  }
  return false;
}

}  // namespace

std::string_view name_of(MutationKind kind) {
  constexpr std::array<std::string_view, kMutationKindCount> names{"drop", "duplicate", "swap",  "redirect",
                                                                   "mode", "shift",     "resize"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<Mutation> mutate(std::span<Schedule> world, MutationKind kind, Random& random) {
  if (world.empty()) return std::nullopt;
  const std::size_t rank = draw(random, world.size());
  if (world[rank].steps.empty()) return std::nullopt;
  const std::size_t at = draw(random, world[rank].steps.size());
  const Step before = world[rank].steps[at];
  if (!apply(world[rank], kind, at, random)) return std::nullopt;
  return Mutation{kind, static_cast<std::uint32_t>(rank), at,
                  fmt::format("rank {} step {} (chunks {}+{}, peer {}): {}", rank, at, before.first, before.count,
                              before.peer, name_of(kind))};
}

}  // namespace gradsync
