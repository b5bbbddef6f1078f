// A collective algorithm as a value: who is asked for (Recipe) and what one rank does (Schedule).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gradsync/types.hpp"
#include "schedule/shape.hpp"
#include "schedule/step.hpp"

namespace gradsync {

// Everything a generator may depend on besides the rank. Equal recipes give equal schedules on every rank.
struct Recipe {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::uint32_t world = 1;
  std::uint32_t root = 0;            // broadcast, reduce, gather, scatter; for send and recv: the other rank
  std::uint32_t segments = 1;        // pipeline segments, algorithms that pipeline (tree, double_tree)
  std::vector<std::uint32_t> hosts;  // host number of each rank; empty: all on one host
  // Weights of the parts that ranks (two_shot) or hosts, by ascending number (hierarchical), own; empty: equal parts.
  std::vector<std::uint32_t> shards = {};
  friend bool operator==(const Recipe&, const Recipe&) = default;
};

// What one rank does. The steps' meaning is their in-order execution; a receive may land early and takes effect in order;
// messages between two ranks are matched in order.
struct Schedule {
  Recipe recipe;
  std::uint32_t rank = 0;
  Shape shape;
  std::vector<Step> steps;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The text form, one step a line (see text.cpp for the grammar).
std::string to_text(const Schedule& schedule);
std::string to_text(const Step& step);
// The inverse. Errors name line and column: "schedule text: line 3 column 9: expected a rank, found 'x'".
Result<Schedule> schedule_from_text(std::string_view text);

// Yields a rank's steps in windows, so that nothing ever holds a whole world.
class StepSource {
 public:
  virtual ~StepSource() = default;
  // Some steps from number `first` on, at least one unless the schedule ends there. Valid until the next call.
  virtual std::span<const Step> window(std::uint64_t first) = 0;
};

// Steps that are already in memory.
class HeldSteps final : public StepSource {
 public:
  explicit HeldSteps(std::span<const Step> steps) : steps_(steps) {}
  std::span<const Step> window(std::uint64_t first) override {
    return first < steps_.size() ? steps_.subspan(static_cast<std::size_t>(first)) : std::span<const Step>();
  }

 private:
  std::span<const Step> steps_;
};

}  // namespace gradsync
