// An obvious interpreter of schedules over real numbers, for tests only. It shares nothing with the verifier: flat
// arrays of elements, messages of elements, ranks that run in order and take turns, channels without bound. What it
// finds is what a user of the schedule would find.
#pragma once

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "schedule/schedule.hpp"

namespace gradsync::interpreter {

// One element: an integer that wraps, a double whose bits tell the order of the additions, and whether it was ever set.
struct Cell {
  std::uint64_t integer = 0xdeadbeefdeadbeefu;
  double real = -1e300;
  bool poison = true;
};
using Cells = std::vector<Cell>;

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Element counts: of message chunk m, or in an all-to-all of what `from` sends to `to`.
inline std::uint64_t chunk_elements(std::uint32_t m) { return 4 + m * 7 % 3; }
inline std::uint64_t pair_elements(std::uint32_t from, std::uint32_t to) { return 4 + (from * 3 + to * 5) % 4; }

class RankMemory {
 public:
  RankMemory(const Schedule& schedule, bool in_place) : schedule_(&schedule) {
    const Shape& shape = schedule.shape;
    std::uint64_t at = 0;
    const auto lay = [&](Space space, std::uint32_t count) {
      std::vector<std::uint64_t>& starts = starts_[static_cast<int>(space)];
      for (std::uint32_t c = 0; c < count; ++c) starts.push_back(at), at += elements(space, c);
    };
    if (in_place) {  // one array of the message; both spaces are windows of it
      std::vector<std::uint64_t> message;
      for (std::uint32_t m = 0; m < shape.chunks; ++m) message.push_back(at), at += chunk_elements(m);
      for (std::uint32_t c = 0; c < shape.input.count; ++c) starts_[0].push_back(message[shape.input.first + c]);
      for (std::uint32_t c = 0; c < shape.output.count; ++c) starts_[1].push_back(message[shape.output.first + c]);
    } else {
      lay(Space::input, shape.input.count);
      lay(Space::output, shape.output.count);
    }
    lay(Space::scratch, shape.chunks * shape.scratch_copies);
    cells_.resize(at);
  }

  std::uint64_t elements(Space space, std::uint32_t chunk) const {
    const Schedule& s = *schedule_;
    if (s.recipe.collective == Collective::all_to_all)
      return space == Space::input ? pair_elements(s.rank, chunk) : pair_elements(chunk % s.shape.chunks, s.rank);
    if (space == Space::input) return chunk_elements(s.shape.input.first + chunk);
    return chunk_elements(space == Space::output ? s.shape.output.first + chunk : chunk % s.shape.chunks);
  }
  Cell* chunk(Space space, std::uint32_t c) { return cells_.data() + starts_[static_cast<int>(space)][c]; }

  // The elements of a cyclic range, one by one; nothing if the range leaves the space.
  std::optional<std::vector<Cell*>> range(Space space, std::uint32_t first, std::uint32_t count) {
    const auto total = static_cast<std::uint32_t>(starts_[static_cast<int>(space)].size());
    const std::uint32_t cycle = space == Space::scratch ? schedule_->shape.chunks : total;
    if (count == 0 || first >= total || count > cycle) return std::nullopt;
    std::vector<Cell*> cells;
    for (std::uint32_t i = 0, c = first; i < count; ++i) {
      for (std::uint64_t e = 0; e < elements(space, c); ++e) cells.push_back(chunk(space, c) + e);
      c = (c + 1) % cycle == 0 ? c + 1 - cycle : c + 1;
    }
    return cells;
  }

 private:
  const Schedule* schedule_;
  std::vector<std::uint64_t> starts_[3];
  Cells cells_;
};

class Run {
 public:
  // `world` is borrowed. Inputs are random, by the seed.
  Run(const std::vector<Schedule>& world, bool in_place, std::uint64_t seed) : world_(&world), seed_(seed) {
    for (const Schedule& schedule : world) {
      memories_.emplace_back(schedule, in_place);
      for (std::uint32_t c = 0; c < schedule.shape.input.count; ++c)
        for (std::uint64_t e = 0; e < memories_.back().elements(Space::input, c); ++e)
          memories_.back().chunk(Space::input, c)[e] = input(schedule.rank, schedule.shape.input.first + c, e);
    }
    next_.assign(world.size(), 0);
  }

  virtual ~Run() = default;

  // Why the world does not do what its collective promises; empty if it does.
  std::string fault() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t r = 0; r < world_->size(); ++r)
        while (step(r)) moved = true;
      if (!fault_.empty()) return fault_;
    }
    for (std::uint32_t r = 0; r < world_->size(); ++r)
      if (next_[r] < (*world_)[r].steps.size()) return "deadlock";
    for (const auto& [pair, messages] : channels_)
      if (!messages.empty()) return "a message is left over";
    for (std::uint32_t r = 0; r < world_->size(); ++r)
      if (std::string wrong = wrong_output(r); !wrong.empty()) return wrong;
    return unequal_replicas();
  }

 protected:
  // The rank's next step in order, if it can run.
  virtual bool step(std::uint32_t r) {
    const std::vector<Step>& steps = (*world_)[r].steps;
    if (!fault_.empty() || next_[r] >= steps.size() || !execute(r, steps[next_[r]])) return false;
    ++next_[r];
    return true;
  }

  // False if the step's message is not there yet, or the step is at fault.
  bool execute(std::uint32_t r, const Step& step) {
    const auto target = memories_[r].range(step.space, step.first, step.count);
    if (!target) return fault_ = "a range leaves its space", false;
    if (step.verb != Verb::send && step.space == Space::input) return fault_ = "input is written", false;
    Cells values;
    if (step.verb == Verb::recv) {
      auto& channel = channels_[{step.peer, r}];
      if (channel.empty()) return false;
      values = std::move(channel.front());
      channel.pop_front();
    } else {
      const bool local = step.verb == Verb::local;
      const auto source = local ? memories_[r].range(step.source_space, step.source, step.count) : target;
      if (!source) return fault_ = "a range leaves its space", false;
      for (const Cell* cell : *source) values.push_back(*cell);
    }
    if (step.verb == Verb::send) return channels_[{r, step.peer}].push_back(std::move(values)), true;
    if (values.size() != target->size()) return fault_ = "a size does not match", false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      Cell& into = *(*target)[i];
      if (step.mode == Mode::assign) into = values[i];
      else into = {into.integer + values[i].integer, into.real + values[i].real, into.poison || values[i].poison};
    }
    return true;
  }

  bool faulty() const { return !fault_.empty(); }
  void count_step(std::uint32_t r) { ++next_[r]; }

 private:
  Cell input(std::uint32_t rank, std::uint32_t message_chunk, std::uint64_t element) const {
    Random random(mix64(seed_ + mix64(std::uint64_t{rank} << 40 | std::uint64_t{message_chunk} << 20 | element)));
    const std::uint64_t integer = random.next();
    return {integer, std::ldexp(random.unit() - 0.5, static_cast<int>(random.below(8))), false};
  }

  // The integer that the collective promises.
  std::uint64_t promised(std::uint32_t r, std::uint32_t output_chunk, std::uint64_t e) const {
    const Recipe& recipe = (*world_)[r].recipe;
    const std::uint32_t m = (*world_)[r].shape.output.first + output_chunk,
                        per = (*world_)[r].shape.chunks / recipe.world;
    switch (recipe.collective) {
      case Collective::all_gather:
      case Collective::gather: return input(m / per, m, e).integer;
      case Collective::broadcast:
      case Collective::scatter:
      case Collective::recv: return input(recipe.root, m, e).integer;
      case Collective::all_to_all: return input(output_chunk, r, e).integer;
      default: break;
    }
    std::uint64_t sum = 0;
    for (std::uint32_t from = 0; from < recipe.world; ++from) sum += input(from, m, e).integer;
    return sum;
  }
  std::string wrong_output(std::uint32_t r) {
    for (std::uint32_t c = 0; c < (*world_)[r].shape.output.count; ++c)
      for (std::uint64_t e = 0; e < memories_[r].elements(Space::output, c); ++e) {
        const Cell& cell = memories_[r].chunk(Space::output, c)[e];
        if (cell.poison) return "an output is not set";
        if (cell.integer != promised(r, c, e)) return "an output is wrong";
      }
    return {};
  }
  std::string unequal_replicas() {
    if ((*world_)[0].recipe.collective == Collective::all_to_all) return {};
    std::map<std::pair<std::uint32_t, std::uint64_t>, double> first;
    for (std::uint32_t r = 0; r < world_->size(); ++r)
      for (std::uint32_t c = 0; c < (*world_)[r].shape.output.count; ++c)
        for (std::uint64_t e = 0; e < memories_[r].elements(Space::output, c); ++e) {
          const double real = memories_[r].chunk(Space::output, c)[e].real;
          const auto [at, fresh] = first.insert({{(*world_)[r].shape.output.first + c, e}, real});
          if (!same_bits(at->second, real)) return "replicas differ in bits";
        }
    return {};
  }

  const std::vector<Schedule>* world_;
  std::uint64_t seed_;
  std::vector<RankMemory> memories_;
  std::vector<std::size_t> next_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Cells>> channels_;
  std::string fault_;
};

}  // namespace gradsync::interpreter
