// One walk of a world of schedules over a value domain, in order on every rank, with at most `window` messages of an
// ordered pair under way. See proof.hpp for why one walk decides and for who runs first.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "schedule/channels.hpp"
#include "schedule/cursor.hpp"
#include "verify/check_step.hpp"
#include "verify/demand.hpp"
#include "verify/proof.hpp"

namespace gradsync {

template <class Domain>
class Walk {
 public:
  using Value = typename Domain::Value;
  Walk(const World& world, const ProveOptions& options, Domain& domain, std::uint64_t window)
      : world_(&world),
        options_(&options),
        domain_(&domain),
        window_(window),
        ranks_(world.size()) {}

  // The first violation, or what was counted.
  Proof run() {
    Proof proof{start(), {}};
    if (proof.ok()) {
      walk();
      if (violation_.ok()) check_end();
      proof.status = violation_;
      proof.counts = counts();
    }
    return proof;
  }
  // Whether the walk stopped with a rank that could go on in a larger window.
  bool wants_room() const { return wants_room_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Message {
    std::vector<Value> values;
    Space space = Space::output;  // of the sender
    Range range;
    std::uint64_t elements = 0, depth = 0, step = 0;
  };
  struct Rank {
    Shape shape;
    Layouts layouts;
    std::unique_ptr<StepSource> source;
    std::optional<Cursor> cursor;
    std::vector<Value> memory;      // input (only in place), output, scratch
    std::uint32_t waiting = kNone;  // the channel that it waits for: for a message, or for room
    std::uint64_t clock = 0, depth = 0, messages = 0, sent = 0, reduced = 0, staged = 0, staged_max = 0;
  };

  Status start() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.shape = world_->shape(r);
      if (Status status = check_shape(world_->recipe(r), rank.shape, r); !status.ok()) return status;
      rank.layouts = options_->layouts(world_->recipe(r), rank.shape, r);
      const std::size_t front = in_place() ? rank.shape.chunks : rank.shape.output.count;
      rank.memory.assign(front + rank.shape.size(Space::scratch), Value{});
      if (in_place())
        for (std::uint32_t i = 0; i < rank.shape.input.count; ++i)
          rank.memory[rank.shape.input.first + i] = domain_->leaf(rank.shape.input.first + i, r);
      rank.source = world_->steps(r);
      rank.cursor.emplace(*rank.source, rank.shape, options_->aliasing, 1);
      runnable_.push_back(r);
    }
    return {};
  }

  bool in_place() const { return options_->aliasing == Aliasing::in_place; }
  Cursor::Slot head(const Rank& rank) const { return Cursor::next_slot(rank.cursor->live()); }

  void walk() {
    while (violation_.ok()) {
      if (!runnable_.empty()) {
        const std::uint32_t r = runnable_.back();
        runnable_.pop_back();
        advance(r);
      } else if (!receivable_.empty()) {
        const std::uint32_t r = receivable_.front();
        receivable_.pop_front();
        receive(r);
        runnable_.push_back(r);
      } else {
        return;
      }
    }
  }

  // Runs the rank up to its next receive, or to a send without room.
  void advance(std::uint32_t r) {
    Rank& rank = ranks_[r];
    while (!rank.cursor->finished()) {
      const Cursor::Slot slot = head(rank);
      const Step& step = rank.cursor->step(slot);
      if (Status wrong = check_step(step, rank.shape, r, world_->size(), matches_chunks(r)); !wrong.ok())
        return violate(r, step, wrong.message);
      if (step.verb == Verb::recv) {
        const std::uint32_t channel = channels_.number(step.peer, r);
        if (channels_.under_way(channel) > 0) receivable_.push_back(r);
        else rank.waiting = channel;
        return;
      }
      if (step.verb == Verb::local) {
        run_local(r, step);
      } else {
        const std::uint32_t channel = channels_.number(r, step.peer);
        if (channels_.under_way(channel) >= window_) {
          rank.waiting = channel;
          return;
        }
        send(r, step, channel);
      }
      if (!violation_.ok()) return;
      rank.cursor->complete(slot);
    }
  }

  void send(std::uint32_t r, const Step& step, std::uint32_t channel) {
    Rank& rank = ranks_[r];
    Message& message = channels_.push(channel);
    message.space = step.space;
    message.range = step.range();
    message.elements = elements_of(rank.shape, rank.layouts, step.space, step.range());
    message.depth = rank.depth = rank.clock + 1;
    message.step = rank.cursor->index(head(rank));
    message.values.clear();
    if (!load(r, step, step.space, step.range(), message.values)) return;
    ++rank.messages;
    rank.sent += message.elements;
    Rank& to = ranks_[step.peer];
    to.staged += message.elements;
    to.staged_max = std::max(to.staged_max, to.staged);
    if (to.waiting == channel) {
      to.waiting = kNone;
      receivable_.push_back(step.peer);
    }
  }

  // The receive at the rank's head, whose message is there.
  void receive(std::uint32_t r) {
    Rank& rank = ranks_[r];
    const Cursor::Slot slot = head(rank);
    const Step step = rank.cursor->step(slot);
    const std::uint32_t channel = channels_.number(step.peer, r);
    const Message& message = channels_.front(channel);
    if (!check_message(r, step, message)) return;
    store(r, step, message.values);
    rank.clock = std::max({rank.clock, rank.depth, message.depth});
    rank.staged -= message.elements;
    channels_.pop(channel);
    rank.cursor->complete(slot);
    Rank& from = ranks_[step.peer];
    if (from.waiting == channel) {
      from.waiting = kNone;
      runnable_.push_back(step.peer);
    }
  }

  void run_local(std::uint32_t r, const Step& step) {
    const Rank& rank = ranks_[r];
    if (!matches_chunks(r) &&
        !equal_sizes(rank, step.source_space, step.source, rank, step.space, step.first, step.count))
      return violate(r, step, "source and target chunks differ in elements");
    loaded_.clear();
    if (load(r, step, step.source_space, step.source_range(), loaded_)) store(r, step, loaded_);
  }

  std::size_t place(const Rank& rank, Space space, std::uint32_t chunk) const {
    const std::size_t front = in_place() ? rank.shape.chunks : rank.shape.output.count;
    if (space == Space::scratch) return front + chunk;
    return in_place() ? rank.shape.message_chunk(space, chunk) : chunk;
  }

  bool load(std::uint32_t r, const Step& step, Space space, Range range, std::vector<Value>& values) {
    const Rank& rank = ranks_[r];
    const bool leaves = space == Space::input && !in_place();  // never written, so never kept
    values.reserve(range.count);
    for_each_stretch(rank.shape, space, range, [&](std::uint32_t first, std::uint32_t count) {
      const Value* memory = leaves ? nullptr : rank.memory.data() + place(rank, space, first);
      for (std::uint32_t i = 0; i < count; ++i) {
        values.push_back(leaves ? domain_->leaf(rank.shape.message_chunk(space, first + i), r) : memory[i]);
        if (!domain_->written(values.back()) && violation_.ok())
          violate(r, step,
                  fmt::format("reads chunk {} of {}, which nobody has written", first + i, name_of_space(space)));
      }
    });
    return violation_.ok();
  }

  // Into the step's range, in its mode.
  void store(std::uint32_t r, const Step& step, const std::vector<Value>& values) {
    Rank& rank = ranks_[r];
    const Value* next = values.data();
    for_each_stretch(rank.shape, step.space, step.range(), [&](std::uint32_t first, std::uint32_t count) {
      Value* memory = rank.memory.data() + place(rank, step.space, first);
      if (step.mode == Mode::assign) std::copy_n(next, count, memory);
      else combine(r, step, first, {memory, count}, next);
      next += count;
    });
    if (step.mode == Mode::combine) rank.reduced += elements_of(rank.shape, rank.layouts, step.space, step.range());
  }

  void combine(std::uint32_t r, const Step& step, std::uint32_t first, std::span<Value> into, const Value* with) {
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (domain_->written(into[i]) && domain_->combine(into[i], with[i])) continue;
      return violate(r, step,
                     fmt::format("combines {} with chunk {} of {}, which holds {}", domain_->describe(with[i]),
                                 first + i, name_of_space(step.space), domain_->describe(into[i])));
    }
  }

  bool matches_chunks(std::uint32_t r) const { return world_->recipe(r).collective != Collective::all_to_all; }

  bool check_message(std::uint32_t r, const Step& step, const Message& message) {
    const Rank& rank = ranks_[r];
    const Shape& from = ranks_[step.peer].shape;
    if (message.range.count != step.count) {
      violate(r, step,
              fmt::format("the message (step {} of rank {}) has {} chunks, expected {}", message.step, step.peer,
                          message.range.count, step.count));
      return false;
    }
    if (matches_chunks(r)) {
      if (same_chunks(from, message.space, rank.shape, step.space, message.range.first, step.first, step.count))
        return true;
      violate(r, step,
              fmt::format("the message (step {} of rank {}) starts at chunk {} of the message, expected {}",
                          message.step, step.peer, from.message_chunk(message.space, message.range.first),
                          rank.shape.message_chunk(step.space, step.first)));
      return false;
    }
    if (equal_sizes(ranks_[step.peer], message.space, message.range.first, rank, step.space, step.first, step.count))
      return true;
    violate(r, step,
            fmt::format("the message (step {} of rank {}) has {} elements, expected {} in chunks of the same sizes",
                        message.step, step.peer, message.elements,
                        elements_of(rank.shape, rank.layouts, step.space, step.range())));
    return false;
  }

  // Whether two ranges agree in the elements of each chunk; what an all-to-all, whose chunks have no common number,
  // goes by.
  bool equal_sizes(const Rank& a, Space space_a, std::uint32_t first_a, const Rank& b, Space space_b,
                   std::uint32_t first_b, std::uint32_t count) const {
    const auto elements = [](const Rank& rank, Space space, std::uint32_t first, std::uint32_t i) {
      return rank.layouts.of(space).size(rank.shape.message_chunk(space, rank.shape.chunk(space, first, i)));
    };
    for (std::uint32_t i = 0; i < count; ++i)
      if (elements(a, space_a, first_a, i) != elements(b, space_b, first_b, i)) return false;
    return true;
  }

  void violate(std::uint32_t r, const Step& step, const std::string& what) {
    if (!violation_.ok()) return;
    violation_ = failure(ErrorCode::invalid_argument, "rank {} step {} ({}): {}", r,
                         ranks_[r].cursor->index(head(ranks_[r])), describe(step), what);
  }

  // All ranks at their ends, all messages received, all outputs as promised and equal.
  void check_end() {
    for (const Rank& rank : ranks_)
      if (!rank.cursor->finished()) return report_deadlock();
    for (std::uint32_t c = 0; c < channels_.count(); ++c)
      if (const std::uint64_t left = channels_.under_way(c); left > 0) {
        const auto [from, to] = channels_.pair(c);
        violation_ =
            failure(ErrorCode::invalid_argument, "rank {} never receives {} messages of rank {}, the first of step {}",
                    to, left, from, channels_.front(c).step);
        return;
      }
    for (std::uint32_t r = 0; r < ranks_.size() && violation_.ok(); ++r) check_output(r);
  }

  void report_deadlock() {
    std::string waits;
    std::uint32_t blocked = 0;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].cursor->finished()) continue;
      const Step& step = ranks_[r].cursor->step(head(ranks_[r]));
      const bool room = step.verb == Verb::send;
      wants_room_ |= room;
      if (blocked++ < 4)
        waits += fmt::format("{}rank {} step {} waits for {} rank {}", blocked == 1 ? "" : ", ", r,
                             ranks_[r].cursor->index(head(ranks_[r])), room ? "room to" : "a message from", step.peer);
    }
    violation_ = failure(ErrorCode::invalid_argument, "deadlock of {} ranks with a window of {} messages: {}{}",
                         blocked, window_, waits, blocked > 4 ? ", …" : "");
  }

  void check_output(std::uint32_t r) {
    const Rank& rank = ranks_[r];
    const Recipe& recipe = world_->recipe(r);
    for (std::uint32_t i = 0; i < rank.shape.output.count; ++i) {
      const Demand demand = demand_of(recipe, rank.shape, r, i);
      const Value& value = rank.memory[place(rank, Space::output, i)];
      if (!domain_->satisfies(value, demand)) {
        violation_ = failure(
            ErrorCode::invalid_argument, "rank {} ends with {} in output chunk {}, expected chunk {} of {}", r,
            domain_->describe(value), i, demand.chunk,
            demand.from == Demand::everyone ? std::string("every rank once") : fmt::format("rank {}", demand.from));
        return;
      }
      if (!matches_chunks(r)) continue;  // an all-to-all gives every rank something of its own
      if (results_.size() < rank.shape.chunks) results_.resize(rank.shape.chunks, {0, kNone});
      Result& result = results_[demand.chunk];
      if (result.rank == kNone) result = {domain_->hash(value), r};
      if (result.hash == domain_->hash(value)) continue;
      violation_ = failure(ErrorCode::invalid_argument,
                           "rank {} combines output chunk {} in another order than rank {}: results differ in bits", r,
                           i, result.rank);
      return;
    }
  }

  ProofCounts counts() const {
    ProofCounts counts;
    counts.window_min = window_;
    for (const Rank& rank : ranks_) {
      counts.steps = std::max(counts.steps, rank.clock);
      counts.messages += rank.messages;
      counts.messages_max = std::max(counts.messages_max, rank.messages);
      counts.sent += rank.sent;
      counts.sent_max = std::max(counts.sent_max, rank.sent);
      counts.reduced += rank.reduced;
      counts.reduced_max = std::max(counts.reduced_max, rank.reduced);
      counts.staging_max = std::max(counts.staging_max, rank.staged_max);
    }
    return counts;
  }

  struct Result {
    std::uint64_t hash;
    std::uint32_t rank;
  };
  const World* world_;
  const ProveOptions* options_;
  Domain* domain_;
  std::uint64_t window_;
  std::vector<Rank> ranks_;
  Channels<Message> channels_;
  std::vector<std::uint32_t> runnable_;   // ranks that may be able to send, copy or reduce
  std::deque<std::uint32_t> receivable_;  // ranks at a receive whose message is there, first come first
  std::vector<Value> loaded_;
  std::vector<Result> results_;  // by message chunk: the first rank's result
  Status violation_;
  bool wants_room_ = false;
};

}  // namespace gradsync
