// For tests: the most obvious execution of schedules, strictly in order, over values that remember who contributed.
// Written apart from the cursor and the verifier, so that a mistake in one of them shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalogue.hpp"
#include "base/random.hpp"
#include "schedule/layout.hpp"

namespace gradsync::plain {

// What lies in one chunk: nothing, or a sum of contributions to one chunk of the message.
struct Value {
  bool defined = false;
  std::uint32_t chunk = 0;                      // of the message
  std::map<std::uint32_t, std::uint32_t> from;  // how often each rank is in it
  std::uint64_t expression = 0;                 // hash of the sum's tree; a + b and b + a are the same
};

struct Message {
  std::vector<Value> values;
  std::vector<std::uint64_t> sizes;  // elements of each chunk
  std::uint32_t depth;
};

struct Counters {
  std::uint64_t sent = 0, reduced = 0, messages = 0;  // elements, elements, messages sent
  std::uint32_t steps = 0;                            // rounds on the longest chain of messages
};

struct Outcome {
  std::string error;  // empty if the run came to its end
  std::vector<Counters> counters;
  std::vector<std::vector<Value>> outputs;  // by rank and output chunk
};

struct Options {
  bool in_place = false;
  std::size_t window = std::numeric_limits<std::size_t>::max();  // messages of a pair on their way
};

class Machine {
 public:
  Machine(const Recipe& recipe, const Layout& layout, Options options) : layout_(layout), options_(options) {
    for (std::uint32_t rank = 0; rank < recipe.world; ++rank) add(make_schedule(recipe, rank));
  }

  Outcome run() {
    Outcome outcome;
    for (bool moved = true; moved && error_.empty();) {
      moved = false;
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
        while (error_.empty() && advance(rank)) moved = true;
    }
    for (const Rank& rank : ranks_) {
      if (error_.empty() && rank.next < rank.schedule.steps.size())
        error_ = "rank " + std::to_string(rank.schedule.rank) + " is stuck at step " + std::to_string(rank.next);
      outcome.counters.push_back(rank.counters);
      std::vector<Value>& output = outcome.outputs.emplace_back();
      for (std::uint32_t i = 0; i < rank.schedule.shape.output.count; ++i)
        output.push_back(memory(rank, Space::output)[place(rank, Space::output, i)]);
    }
    for (const auto& [pair, queue] : channels_)
      if (error_.empty() && !queue.empty()) error_ = "a message was not received";
    outcome.error = error_;
    return outcome;
  }

 private:
  struct Rank {
    Schedule schedule;
    std::vector<Value> input, output, scratch;  // in place: input stays empty and output is the whole message
    std::size_t next = 0;
    std::uint32_t clock = 0, sent_at = 0;  // rounds
    Counters counters;
  };

  void add(Schedule schedule) {
    Rank rank;
    const Shape shape = schedule.shape;
    if (shape.chunks != layout_.chunks()) error_ = "the layout has other chunks than the shape";
    rank.input.resize(options_.in_place ? 0 : shape.size(Space::input));
    rank.output.resize(options_.in_place ? shape.chunks : shape.size(Space::output));
    rank.scratch.resize(shape.size(Space::scratch));
    rank.schedule = std::move(schedule);
    for (std::uint32_t i = 0; i < shape.input.count; ++i) {
      Value& value = memory(rank, Space::input)[place(rank, Space::input, i)];
      value = {true, shape.input.first + i, {{rank.schedule.rank, 1}}, mix64(rank.schedule.rank)};
    }
    ranks_.push_back(std::move(rank));
  }

  std::vector<Value>& memory(Rank& rank, Space space) const {
    if (space == Space::scratch) return rank.scratch;
    return space == Space::output || options_.in_place ? rank.output : rank.input;
  }
  const std::vector<Value>& memory(const Rank& rank, Space space) const {
    return memory(const_cast<Rank&>(rank), space);
  }
  std::uint32_t place(const Rank& rank, Space space, std::uint32_t i) const {
    return options_.in_place && space != Space::scratch ? rank.schedule.shape.message_chunk(space, i) : i;
  }
  void fail(const Rank& rank, const char* what) {
    error_ = "rank " + std::to_string(rank.schedule.rank) + " step " + std::to_string(rank.next) + ": " + what;
  }

  // The chunks of a range, in order; an error if it lies outside of its space.
  std::vector<std::uint32_t> chunks(const Rank& rank, Space space, Range range) {
    const Shape& shape = rank.schedule.shape;
    std::vector<std::uint32_t> found;
    if (range.first >= shape.size(space) || range.count > shape.cycle(space)) fail(rank, "range outside of its space");
    for (std::uint32_t i = 0; i < range.count && error_.empty(); ++i)
      found.push_back(shape.chunk(space, range.first, i));
    return found;
  }
  Message read(Rank& rank, Space space, Range range) {
    Message message;
    for (std::uint32_t i : chunks(rank, space, range)) {
      const Value& value = memory(rank, space)[place(rank, space, i)];
      if (!value.defined) fail(rank, "reads what nobody wrote");
      message.values.push_back(value);
      message.sizes.push_back(layout_.size(rank.schedule.shape.message_chunk(space, i)));
    }
    return message;
  }
  void write(Rank& rank, const Step& step, const Message& message) {
    if (step.space == Space::input) fail(rank, "writes its input");
    if (step.count != message.values.size()) fail(rank, "message of another count");
    const auto targets = chunks(rank, step.space, step.range());
    for (std::size_t i = 0; i < targets.size() && error_.empty(); ++i) {
      Value& old = memory(rank, step.space)[place(rank, step.space, targets[i])];
      if (message.sizes[i] != layout_.size(rank.schedule.shape.message_chunk(step.space, targets[i])))
        fail(rank, "chunk of another size");
      if (step.mode == Mode::combine) combine(rank, old, message.values[i], message.sizes[i]);
      else old = message.values[i];
    }
  }
  void combine(Rank& rank, Value& into, const Value& value, std::uint64_t elements) {
    if (!into.defined || into.chunk != value.chunk) return fail(rank, "combines with another chunk");
    for (const auto& [who, times] : value.from) into.from[who] += times;
    const auto [low, high] = std::minmax(into.expression, value.expression);
    into.expression = mix64(low ^ mix64(high + 1));
    rank.counters.reduced += elements;
  }

  // Runs the rank's next step; false if there is none or it must wait.
  bool advance(std::uint32_t index) {
    Rank& rank = ranks_[index];
    if (rank.next >= rank.schedule.steps.size()) return false;
    const Step& step = rank.schedule.steps[rank.next];
    if (step.verb != Verb::local && (step.peer >= ranks_.size() || step.peer == index))
      return fail(rank, "bad peer"), false;
    if (step.verb == Verb::send) {
      auto& queue = channels_[{index, step.peer}];
      if (queue.size() >= options_.window) return false;
      Message message = read(rank, step.space, step.range());
      message.depth = rank.sent_at = rank.clock + 1;
      for (std::uint64_t size : message.sizes) rank.counters.sent += size;
      ++rank.counters.messages;
      queue.push_back(std::move(message));
    } else if (step.verb == Verb::recv) {
      auto& queue = channels_[{step.peer, index}];
      if (queue.empty()) return false;
      write(rank, step, queue.front());
      // A round is what a rank sends before it next receives: it took place even if what is received now is older.
      rank.clock = std::max({rank.clock, rank.sent_at, queue.front().depth});
      rank.counters.steps = rank.clock;
      queue.pop_front();
    } else {
      write(rank, step, read(rank, step.source_space, step.source_range()));
    }
    ++rank.next;
    return error_.empty();
  }

  Layout layout_;
  Options options_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Message>> channels_;
  std::string error_;
};

}  // namespace gradsync::plain
