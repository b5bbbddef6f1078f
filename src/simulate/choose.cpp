#include "simulate/choose.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/float_mode.hpp"
#include "base/limits.hpp"
#include "simulate/shards.hpp"

namespace gradsync {
namespace {

constexpr double kHopeless = 4;  // estimates are right within less than this factor

// Forecasts closer than this are equal: sums in another order, as other compilers or machines make them, differ by less.
constexpr double kEqualWithin = 1e-9;
bool clearly_less(double a, double b) { return a < b * (1 - kEqualWithin); }

// Fastest first; those that are equal stay in the order in which they were.
template <class Item, class Seconds>
void order_by_time(std::vector<Item>& items, Seconds seconds_of) {
  struct Key {
    double seconds;
    std::size_t at, place;
  };
  std::vector<Key> keys;
  for (std::size_t i = 0; i < items.size(); ++i) keys.push_back({seconds_of(items[i]), i, 0});
  std::sort(keys.begin(), keys.end(),
            [](const Key& a, const Key& b) { return std::pair(a.seconds, a.at) < std::pair(b.seconds, b.at); });
  for (std::size_t i = 1; i < keys.size(); ++i)
    keys[i].place = clearly_less(keys[i - 1].seconds, keys[i].seconds) ? i : keys[i - 1].place;
  std::sort(keys.begin(), keys.end(),
            [](const Key& a, const Key& b) { return std::pair(a.place, a.at) < std::pair(b.place, b.at); });
  std::vector<Item> ordered;
  for (const Key& key : keys) ordered.push_back(std::move(items[key.at]));
  items = std::move(ordered);
}

struct Candidate {
  Recipe recipe;
  Estimate estimate;
};
// One algorithm, with ever more segments if it pipelines.
using Family = std::vector<Candidate>;

double least_estimate(const Family& family) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : family) least = std::min(least, candidate.estimate.seconds);
  return least;
}

bool one_host(std::span<const std::uint32_t> hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](std::uint32_t h) { return h == hosts[0]; });
}

Payload payload_of(const ChoiceQuery& query) { return {layouts_of_count(query.bytes), 1}; }

// One algorithm with its numbers of segments. hierarchical has some only with uneven shards: there the slowest host's way
// out and way in must be busy at once.
Result<Family> family_of(const CatalogueEntry& entry, const ChoiceQuery& query, const Network& network,
                         const std::vector<std::uint32_t>& shards) {
  Family family;
  const bool pipelines = entry.pipelines && (entry.algorithm != Algorithm::hierarchical || !shards.empty());
  for (std::uint32_t segments = 1; segments <= (pipelines ? limits::segments_max : 1); segments *= 2) {
    if (segments > 1 && segments > query.bytes) break;
    Recipe recipe{
        query.collective, entry.algorithm, query.world, 0, segments, {query.hosts.begin(), query.hosts.end()}, shards};
    if (Status status = check(recipe); !status.ok()) return status;
    const Estimate guess = estimate(recipe, payload_of(query), network);
    family.push_back({std::move(recipe), guess});
  }
  return family;
}

// In the order of their best estimates, ties in the order of the catalogue, even shards first.
Result<std::vector<Family>> families_of(const ChoiceQuery& query, const Network& network) {
  std::vector<Family> families;
  const auto add = [&](const CatalogueEntry& entry, const std::vector<std::uint32_t>& shards) -> Status {
    Result<Family> family = family_of(entry, query, network, shards);
    if (!family.ok()) return family.status();
    families.push_back(*std::move(family));
    return {};
  };
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.collective != query.collective) continue;
    if (entry.algorithm == Algorithm::hierarchical && one_host(query.hosts)) continue;  // has nothing to gain
    if (Status status = add(entry, {}); !status.ok()) return status;
    const Recipe recipe{query.collective, entry.algorithm, query.world, 0, 1, {query.hosts.begin(), query.hosts.end()}};
    const std::vector<std::uint32_t> shards = shards_for(recipe, network);
    if (shards.empty()) continue;
    if (Status status = add(entry, shards); !status.ok()) return status;
  }
  if (families.empty())
    return failure(ErrorCode::unsupported, "no algorithm of the catalogue does {} with {} ranks",
                   name_of(query.collective), query.world);
  order_by_time(families, least_estimate);
  return families;
}

bool point_to_point(Collective c) { return c == Collective::send || c == Collective::recv; }

// Whether all ranks do the same, on equal links, so that an estimate is as good as a simulation.
bool is_symmetric(const Recipe& recipe, const Network& network) {
  if (!network.ports.empty()) return false;
  switch (recipe.algorithm) {
    case Algorithm::flat:
    case Algorithm::tree:
    case Algorithm::double_tree:
    case Algorithm::hierarchical: return false;
    default: return !has_root(recipe.collective);
  }
}

bool can_simulate(const Recipe& recipe) { return recipe.world <= 2 || !point_to_point(recipe.collective); }

class Chooser {
 public:
  Chooser(const ChoiceQuery& query, const Network& network) : payload_(payload_of(query)), network_(&network) {}

  // From the number of segments with the best estimate on, to more and to fewer as long as that is faster: the time of
  // a pipeline falls with the segments' length and rises with their number, so it has one valley. With uneven shards all
  // are tried: what the lookahead holds back makes valleys of its own.
  void consider(const Family& family) {
    if (!family.front().recipe.shards.empty()) {
      for (const Candidate& candidate : family) consider(candidate);
      return;
    }
    std::size_t first = 0;
    for (std::size_t i = 1; i < family.size(); ++i)
      if (clearly_less(family[i].estimate.seconds, family[first].estimate.seconds)) first = i;
    const double start = consider(family[first]);
    double last = start;
    for (std::size_t i = first + 1; i < family.size(); ++i)
      if (const double seconds = consider(family[i]); !clearly_less(last, seconds)) last = seconds;
      else break;
    last = start;
    for (std::size_t i = first; i-- > 0;)
      if (const double seconds = consider(family[i]); !clearly_less(last, seconds)) last = seconds;
      else break;
  }
  Result<Choice> best() const { return status_.ok() ? Result<Choice>(best_) : Result<Choice>(status_); }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  double consider(const Candidate& candidate) {
    Choice choice = evaluate(candidate);
    const double seconds = choice.seconds;
    if (clearly_less(seconds, best_.seconds)) best_ = std::move(choice);
    return seconds;
  }

  // Takes for ever where it cannot win or is left out.
  Choice evaluate(const Candidate& candidate) {
    const Estimate& guess = candidate.estimate;
    Choice choice{candidate.recipe.algorithm, candidate.recipe.segments, kNever, false, candidate.recipe.shards};
    if (clearly_less(best_.seconds, guess.at_least_seconds)) return choice;
    if (clearly_less(kHopeless * best_.seconds, guess.seconds)) return choice;
    const bool symmetric = is_symmetric(candidate.recipe, *network_);
    if (!symmetric && guess.messages > messages_left_) return choice;
    choice.seconds = guess.seconds;
    if (!can_simulate(candidate.recipe) || (symmetric && guess.messages > symmetric_messages_max)) return choice;
    if (!symmetric) messages_left_ -= guess.messages;
    Result<Forecast> forecast = simulate(candidate.recipe, payload_, *network_);
    choice.seconds = forecast.ok() ? forecast->seconds : kNever;
    choice.simulated = true;
    if (!forecast.ok()) status_ = forecast.status();
    return choice;
  }

  Payload payload_;
  const Network* network_;
  std::uint64_t messages_left_ = simulated_messages_max;
  Choice best_{Algorithm::automatic, 1, kNever, false, {}};
  Status status_;
};

[[gnu::noinline]] Result<Choice> fastest(const ChoiceQuery& query, const Network& network) {
  Result<std::vector<Family>> families = families_of(query, network);
  if (!families.ok()) return families.status();
  Chooser chooser(query, network);
  for (const Family& family : *families) chooser.consider(family);
  return chooser.best();
}

[[gnu::noinline]] Result<std::vector<Choice>> ranked(const ChoiceQuery& query, const Network& network) {
  Result<std::vector<Family>> families = families_of(query, network);
  if (!families.ok()) return families.status();
  std::vector<Choice> choices;
  for (const Family& family : *families)
    for (const Candidate& candidate : family) {
      choices.push_back({candidate.recipe.algorithm, candidate.recipe.segments, candidate.estimate.seconds, false,
                         candidate.recipe.shards});
      if (candidate.estimate.messages > 10 * simulated_messages_max || !can_simulate(candidate.recipe)) continue;
      Result<Forecast> forecast = simulate(candidate.recipe, payload_of(query), network);
      if (!forecast.ok()) return forecast.status();
      choices.back().seconds = forecast->seconds;
      choices.back().simulated = true;
    }
  order_by_time(choices, [](const Choice& choice) { return choice.seconds; });
  return choices;
}

}  // namespace

Result<Choice> choose(const ChoiceQuery& query, const Network& network) {
  const DefaultFloatMode mode;
  return fastest(query, network);
}

Result<std::vector<Choice>> rank_candidates(const ChoiceQuery& query, const Network& network) {
  const DefaultFloatMode mode;
  return ranked(query, network);
}

}  // namespace gradsync
