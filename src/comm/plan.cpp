#include "comm/plan.hpp"

#include <algorithm>
#include <bit>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "simulate/choose.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kPartBytesMin = 16u
                                        << 10;  // of a rank: below, the number of steps counts, and the model is right

}  // namespace

PlanBook::PlanBook(std::uint32_t rank, std::uint32_t size, std::vector<std::uint32_t> hosts, TransportKind kind)
    : rank_(rank),
      size_(size),
      hosts_(std::move(hosts)) {
  const bool several = std::any_of(hosts_.begin(), hosts_.end(), [&](std::uint32_t h) { return h != hosts_[0]; });
  network_ = assumed_network(kind, several);
  in_memory_ = !several && kind != TransportKind::tcp;
}

std::shared_ptr<const Schedule> PlanBook::plan(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  Algorithm algorithm = wanted.options.algorithm;
  std::uint32_t segments = std::max(1u, wanted.options.segments);
  if (algorithm == Algorithm::automatic) {
    const Chosen choice = choose(wanted);
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

// The model has a port out and a port in for each rank, so it prefers pipelines, which keep both busy. In shared memory there
// are no ports: the processors move every byte, and nothing is faster than each rank reading its part of everyone's memory
// once and copying the rest from the owners.
bool PlanBook::at_the_board(const Wanted& wanted) const {
  return in_memory_ && wanted.collective == Collective::all_reduce && size_ > 1 && size_ <= limits::board_ranks_max;
}

bool PlanBook::whole_host_in_memory(const Wanted& wanted) const {
  return in_memory_ && wanted.collective == Collective::all_reduce && size_ > 1 &&
         wanted.bytes / size_ >= kPartBytesMin;
}

PlanBook::Chosen PlanBook::choose(const Wanted& wanted) {
  const auto magnitude = static_cast<int>(std::bit_width(wanted.bytes));
  for (const Chosen& chosen : choices_)
    if (chosen.collective == wanted.collective && chosen.magnitude == magnitude) return chosen;
  if (at_the_board(wanted))
    return {wanted.collective, magnitude,
            wanted.bytes <= limits::board_inline_bytes / 2 ? Algorithm::one_shot : Algorithm::two_shot, 1};
  if (whole_host_in_memory(wanted)) return {wanted.collective, magnitude, Algorithm::two_shot, 1};
  // One choice for all sizes of a magnitude, made for the middle of it, so that the number of choices is bounded.
  const std::uint64_t typical = magnitude < 2 ? wanted.bytes : std::uint64_t{3} << (magnitude - 2);
  Result<Choice> best = gradsync::choose({wanted.collective, typical, size_, hosts_}, network_);
  throw_if_failed(best.status());
  choices_.push_back({wanted.collective, magnitude, best->algorithm, best->segments});
  return choices_.back();
}

void PlanBook::set_network(const Network& network) {
  std::lock_guard lock(mutex_);
  network_ = network;
  choices_.clear();
}

Network PlanBook::network() {
  std::lock_guard lock(mutex_);
  return network_;
}

Network assumed_network(TransportKind kind, bool several_hosts) {
  const Link memory{0.4e-6, 1 / 5e9}, loopback{8e-6, 1 / 2e9}, wire{20e-6, 1 / 1.1e9};
  const double gamma = 1 / 8e9;
  if (several_hosts) return Network::two_level(kind == TransportKind::tcp ? loopback : memory, wire, gamma, 2e-6);
  return kind == TransportKind::tcp ? Network::uniform(loopback, gamma, 3e-6) : Network::uniform(memory, gamma, 0.1e-6);
}

}  // namespace gradsync
