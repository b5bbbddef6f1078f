#include "comm/plan.hpp"

#include <algorithm>
#include <bit>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "base/random.hpp"
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
  auto schedule = plan(wanted, Moment::submission);
  throw_if_failed(schedule.status());
  return *std::move(schedule);
}

Result<std::shared_ptr<const Schedule>> PlanBook::plan_in_turn(const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  return plan(wanted, Moment::turn);
}

Result<std::shared_ptr<const Schedule>> PlanBook::plan(const Wanted& wanted, Moment moment) {
  Algorithm algorithm = wanted.options.algorithm;
  std::uint32_t segments = std::max(1u, wanted.options.segments);
  std::vector<std::uint32_t> shards(wanted.options.shards.begin(), wanted.options.shards.end());
  if (algorithm == Algorithm::automatic) {
    Result<Chosen> choice = choose(wanted, moment);
    if (!choice.ok()) return choice.status();
    algorithm = choice->algorithm;
    shards = std::move(choice->shards);
    if (wanted.options.segments == 0) segments = choice->segments;
  }
  for (auto it = schedules_.rbegin(); it != schedules_.rend(); ++it) {
    const Recipe& recipe = (*it)->recipe;
    if (recipe.collective == wanted.collective && recipe.algorithm == algorithm && recipe.root == wanted.root &&
        recipe.segments == segments && recipe.shards == shards) {
      std::rotate(it.base() - 1, it.base(), schedules_.end());
      return schedules_.back();
    }
  }
  const Recipe recipe{wanted.collective, algorithm, size_, wanted.root, segments, hosts_, std::move(shards)};
  if (Status status = check(recipe); !status.ok()) return status;
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

Result<PlanBook::Chosen> PlanBook::choose(const Wanted& wanted, Moment moment) {
  const auto magnitude = static_cast<int>(std::bit_width(wanted.bytes));
  for (const Chosen& chosen : choices_)
    if (chosen.collective == wanted.collective && chosen.moment == moment && chosen.magnitude == magnitude)
      return chosen;
  if (at_the_board(wanted))
    return Chosen{wanted.collective, moment, magnitude,
                  wanted.bytes <= limits::board_inline_bytes / 2 ? Algorithm::one_shot : Algorithm::two_shot, 1};
  if (whole_host_in_memory(wanted)) return Chosen{wanted.collective, moment, magnitude, Algorithm::two_shot, 1};
  // One choice for all sizes of a magnitude, made for the middle of it, so that the number of choices is bounded.
  const std::uint64_t typical = magnitude < 2 ? wanted.bytes : std::uint64_t{3} << (magnitude - 2);
  Network network = network_;
  if (moment == Moment::submission) network.ports.clear();
  if (!network.ports.empty()) network.overhead_s = std::max(network.overhead_s, overhead_s_);
  Result<Choice> best = gradsync::choose({wanted.collective, typical, size_, hosts_}, network);
  if (!best.ok()) return best.status();
  choices_.push_back({wanted.collective, moment, magnitude, best->algorithm, best->segments, best->shards});
  return choices_.back();
}

void PlanBook::set_network(const Network& network) {
  std::lock_guard lock(mutex_);
  std::vector<HostPort> ports = std::move(network_.ports);
  network_ = network;
  network_.ports = std::move(ports);
  choices_.clear();
}

void PlanBook::set_ports(std::vector<HostPort> ports, double overhead_s) {
  std::lock_guard lock(mutex_);
  overhead_s_ = overhead_s;
  network_.ports = std::move(ports);
  std::erase_if(choices_, [](const Chosen& chosen) { return chosen.moment == Moment::turn; });
}

std::uint64_t hash_of_shards(std::span<const std::uint32_t> shards) {
  if (shards.empty()) return 0;
  std::uint64_t hash = 1;
  for (std::uint32_t weight : shards) hash = mix64(hash ^ weight);
  return hash | 1;
}

Network PlanBook::network() {
  std::lock_guard lock(mutex_);
  Network network = network_;
  if (!network.ports.empty()) network.overhead_s = std::max(network.overhead_s, overhead_s_);
  return network;
}

Network assumed_network(TransportKind kind, bool several_hosts) {
  const Link memory{0.4e-6, 1 / 5e9}, loopback{8e-6, 1 / 2e9}, wire{20e-6, 1 / 1.1e9};
  const double gamma = 1 / 8e9;
  if (several_hosts) return Network::two_level(kind == TransportKind::tcp ? loopback : memory, wire, gamma, 2e-6);
  return kind == TransportKind::tcp ? Network::uniform(loopback, gamma, 3e-6) : Network::uniform(memory, gamma, 0.1e-6);
}

}  // namespace gradsync
