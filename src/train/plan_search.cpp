// Messages go one after another; one that holds the units i … j-1 starts when unit j-1 is ready and the one before it is
// done, and takes a + b bytes. Which cuts complete earliest?
//
// Ask instead whether the deadline T can be met, and answer from the end. The last message must start at ready(j-1), so let it
// take as many units as its cost allows before T; what is left must be complete when it starts at the latest, which is the
// same question for a shorter list. Taking as many as possible is never wrong: moving units from the message before to the
// last one delays the last by exactly what it relieves the one before of, which also becomes ready sooner. So one pass
// decides, and finds the fewest messages; the earliest T is found by bisection: O(units) a pass, some 80 passes.
//
// MG-WFBP (Shi, Chu, Li: "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM 2019)
// has the same model and merges forward: a layer joins the next one if that is ready before the wire is free or within the
// latency that merging saves. Its answer depends on the merges already made; here T is the least for the list, the number of
// messages then the least for T, and a bucket has a largest size. With several dtypes (a message has one) cuts are common to
// all of them, and small buckets are merged afterwards where that does not delay the end: not always the least.
#include "train/plan_search.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/float_mode.hpp"

namespace gradsync {
namespace {

constexpr double kTie = 1.01;        // of the completion time
constexpr double kPrecision = 1e-9;  // of bisection
constexpr int kBisectionsMax = 64;
constexpr std::size_t kMergedMax = 1024;  // buckets, as trying all merges takes time by their square

using Runs = std::array<PlanRun, kDTypeCount>;

// The units begin … end - 1 on the wire, one message a dtype.
class Stretch {
 public:
  Stretch(const PlanUnits& all, std::uint32_t end) : all_(all), begin_(end), ready_s_(all.units[end - 1].ready_s) {}

  // Takes the unit in front of the stretch if there is room and all is done by `deadline_s`.
  bool grow(double deadline_s) {
    const PlanUnit& unit = all_.units[begin_ - 1];
    PlanRun& run = runs_[static_cast<std::size_t>(unit.dtype)];
    if (!run.takes(all_, unit, true)) return false;
    PlanRun grown = run;
    grown.take(all_, unit, true);
    const std::uint64_t bytes = bytes_ + grown.bytes - run.bytes;
    const std::uint32_t messages = messages_ + (run.units == 0 ? 1 : 0);
    if (ready_s_ + cost_s(messages, bytes) > deadline_s) return false;
    run = grown;
    bytes_ = bytes;
    messages_ = messages;
    --begin_;
    return true;
  }
  std::uint32_t begin() const { return begin_; }
  std::uint32_t messages() const { return messages_; }
  double cost_s() const { return cost_s(messages_, bytes_); }

 private:
  double cost_s(std::uint32_t messages, std::uint64_t bytes) const {
    return all_.cost.latency_s * messages + all_.cost.seconds_per_byte * static_cast<double>(bytes);
  }

  const PlanUnits& all_;
  std::uint32_t begin_;
  double ready_s_;
  std::uint64_t bytes_ = 0;
  std::uint32_t messages_ = 0;
  Runs runs_{};
};

// The number of messages with which `deadline_s` is met, if it can be. `ends`, if given, gets the stretches' ends, last first.
std::optional<std::uint32_t> meet(const PlanUnits& all, double deadline_s, std::vector<std::uint32_t>* ends = nullptr) {
  std::uint32_t messages = 0;
  for (auto end = static_cast<std::uint32_t>(all.units.size()); end != 0;) {
    Stretch stretch(all, end);
    while (stretch.begin() != 0 && stretch.grow(deadline_s)) {}
    if (stretch.begin() == end) return std::nullopt;
    if (ends != nullptr) ends->push_back(end);
    deadline_s -= stretch.cost_s();
    messages += stretch.messages();
    end = stretch.begin();
  }
  return messages;
}

// The least deadline in (low, high] that `met` accepts; it accepts `high`.
template <class Met>
double bisect(double low, double high, const Met& met) {
  for (int i = 0; i < kBisectionsMax && high - low > kPrecision * high; ++i) {
    const double middle = low + (high - low) / 2;
    (met(middle) ? high : low) = middle;
  }
  return high;
}

// A deadline that can be met: with a message for each unit, unless rounding or a second dtype spoils that.
double generous_deadline_s(const PlanUnits& all) {
  double wire_s = 0;
  for (const PlanUnit& unit : all.units) {
    const std::uint64_t bytes = unit.bytes + all.headers.of(unit.dtype, unit.begins ? 1 : 0);
    wire_s =
        std::max(wire_s, unit.ready_s) + all.cost.latency_s + all.cost.seconds_per_byte * static_cast<double>(bytes);
  }
  while (!meet(all, wire_s)) wire_s = wire_s * 1.5 + 1e-9;
  return wire_s;
}

// Groups of units, a dtype and stretch each; stretches given by their ends, last first.
PlanGroups groups_of(const PlanUnits& all, const std::vector<std::uint32_t>& ends) {
  PlanGroups groups;
  std::uint32_t unit = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    std::array<std::vector<std::uint32_t>, kDTypeCount> by_dtype;
    for (; unit < *end; ++unit) by_dtype[static_cast<std::size_t>(all.units[unit].dtype)].push_back(unit);
    for (std::vector<std::uint32_t>& group : by_dtype)
      if (!group.empty()) groups.push_back(std::move(group));
  }
  std::ranges::sort(groups, {}, [](const auto& group) { return group.back(); });
  return groups;
}

PlanRun run_of(const PlanUnits& all, const std::vector<std::uint32_t>& group) {
  PlanRun run;
  for (const std::uint32_t unit : group) run.take(all, all.units[unit], false);
  return run;
}

// Both as one bucket, where they may be.
std::optional<std::vector<std::uint32_t>> joined(const PlanUnits& all, const std::vector<std::uint32_t>& a,
                                                 const std::vector<std::uint32_t>& b) {
  PlanRun run = run_of(all, a);
  for (const std::uint32_t unit : b) {
    if (!run.takes(all, all.units[unit], false)) return std::nullopt;
    run.take(all, all.units[unit], false);
  }
  std::vector<std::uint32_t> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

// Merges a bucket into the next one of its dtype wherever everything is still complete by `deadline_s`.
void merge_small(const PlanUnits& all, PlanGroups& groups, double deadline_s) {
  if (groups.size() > kMergedMax) return;
  for (std::size_t k = 0; k < groups.size();) {
    const DType dtype = all.units[groups[k].back()].dtype;
    const auto next = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(k) + 1, groups.end(),
                                   [&](const auto& group) { return all.units[group.back()].dtype == dtype; });
    auto both = next == groups.end() ? std::nullopt : joined(all, groups[k], *next);
    PlanGroups tried;
    if (both) {
      tried = groups;
      tried[static_cast<std::size_t>(next - groups.begin())] = std::move(*both);
      tried.erase(tried.begin() + static_cast<std::ptrdiff_t>(k));
    }
    if (both && completion_of(all, tried) <= deadline_s) groups = std::move(tried);
    else ++k;
  }
}

bool one_dtype(const PlanUnits& all) {
  return std::ranges::all_of(all.units, [&](const PlanUnit& unit) { return unit.dtype == all.units[0].dtype; });
}

[[gnu::noinline]] PlanGroups search(const PlanUnits& all) {
  const double earliest_s = bisect(0, generous_deadline_s(all), [&](double t) { return meet(all, t).has_value(); });
  const std::uint32_t fewest = meet(all, kTie * earliest_s).value_or(~0u);
  const auto few_enough = [&](double t) { return meet(all, t).value_or(~0u) <= fewest; };
  const double chosen_s = few_enough(earliest_s) ? earliest_s : bisect(earliest_s, kTie * earliest_s, few_enough);
  std::vector<std::uint32_t> ends;
  meet(all, chosen_s, &ends);
  PlanGroups groups = groups_of(all, ends);
  if (!one_dtype(all)) merge_small(all, groups, std::max(kTie * earliest_s, completion_of(all, groups)));
  return groups;
}

}  // namespace

PlanGroups fill_buckets(const PlanUnits& all) {
  PlanGroups groups;
  std::array<std::vector<std::uint32_t>, kDTypeCount> open;
  Runs runs{};
  for (std::uint32_t u = 0; u < all.units.size(); ++u) {
    const PlanUnit& unit = all.units[u];
    const auto d = static_cast<std::size_t>(unit.dtype);
    if (!runs[d].takes(all, unit, false)) {
      groups.push_back(std::exchange(open[d], {}));
      runs[d] = {};
    }
    runs[d].take(all, unit, false);
    open[d].push_back(u);
  }
  for (std::vector<std::uint32_t>& group : open)
    if (!group.empty()) groups.push_back(std::move(group));
  std::ranges::sort(groups, {}, [](const auto& group) { return group.back(); });
  return groups;
}

PlanGroups search_buckets(const PlanUnits& all) {
  if (all.units.empty()) return {};
  const DefaultFloatMode mode;
  return search(all);
}

double completion_of(const PlanUnits& all, const PlanGroups& groups) {
  double wire_s = 0;
  for (const std::vector<std::uint32_t>& group : groups) {
    double ready_s = 0;
    std::uint64_t bytes = 0;
    std::uint32_t begun = 0;
    for (const std::uint32_t u : group) {
      const PlanUnit& unit = all.units[u];
      ready_s = std::max(ready_s, unit.ready_s);
      bytes += unit.bytes;
      begun += unit.begins ? 1 : 0;
    }
    bytes += all.headers.of(all.units[group.front()].dtype, begun);
    wire_s = std::max(wire_s, ready_s) + all.cost.latency_s + all.cost.seconds_per_byte * static_cast<double>(bytes);
  }
  return wire_s;
}

}  // namespace gradsync
