#include "comm/plan.hpp"

#include <algorithm>
#include <bit>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"

namespace gradsync {

PlanBook::PlanBook(std::uint32_t rank, std::uint32_t size, std::vector<std::uint32_t> hosts, TransportKind kind)
    : rank_(rank), size_(size), hosts_(std::move(hosts)), kind_(kind) {}

std::shared_ptr<const Schedule> PlanBook::plan(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  Algorithm algorithm = wanted.options.algorithm;
  std::uint32_t segments = std::max(1u, wanted.options.segments);
  if (algorithm == Algorithm::automatic) {
    const Choice choice = choose(wanted);
    algorithm = choice.algorithm;
    if (wanted.options.segments == 0) segments = choice.segments;
  }
  for (auto it = schedules_.rbegin(); it != schedules_.rend(); ++it) {
    const Recipe& recipe = (*it)->recipe;
    if (recipe.collective == wanted.collective && recipe.algorithm == algorithm && recipe.root == wanted.root &&
        recipe.segments == segments) {
      std::rotate(it.base() - 1, it.base(), schedules_.end());
      return schedules_.back();
    }
  }
  const Recipe recipe{wanted.collective, algorithm, size_, wanted.root, segments, hosts_};
  throw_if_failed(check(recipe));
  if (schedules_.size() >= limits::plans_cached_max) schedules_.erase(schedules_.begin());
  schedules_.push_back(std::make_shared<const Schedule>(make_schedule(recipe, rank_)));
  return schedules_.back();
}

PlanBook::Choice PlanBook::choose(const Wanted& wanted) {
  const auto magnitude = static_cast<int>(std::bit_width(wanted.bytes));
  for (const Choice& choice : choices_)
    if (choice.collective == wanted.collective && choice.magnitude == magnitude) return choice;
  Choice choice{wanted.collective, magnitude, Algorithm::flat, 1};
  switch (wanted.collective) {
    case Collective::all_reduce:
      choice.algorithm = wanted.bytes <= 16384 ? Algorithm::recursive_doubling : Algorithm::two_shot;
      break;
    case Collective::reduce_scatter:
    case Collective::all_gather: choice.algorithm = Algorithm::direct; break;
    case Collective::barrier: choice.algorithm = Algorithm::recursive_doubling; break;
    case Collective::all_to_all:
    case Collective::send:
    case Collective::recv: choice.algorithm = Algorithm::direct; break;
    default: choice.algorithm = Algorithm::tree; break;
  }
  choices_.push_back(choice);
  return choice;
}

}  // namespace gradsync
