#include "simulate/forecast.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "base/float_mode.hpp"
#include "base/limits.hpp"
#include "schedule/channels.hpp"
#include "schedule/cursor.hpp"
#include "simulate/events.hpp"

namespace gradsync {
namespace {

class Simulation {
 public:
  Simulation(const World& world, const Payload& payload, const Network& network)
      : network_(&network),
        payload_(&payload),
        ranks_(world.size()),
        hosts_(world.recipe(0).hosts),
        nic_of_(hosts_) {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      rank.shape = world.shape(r);
      rank.layouts = payload.layouts(world.recipe(r), rank.shape, r);
      rank.source = world.steps(r);
      rank.cursor.emplace(*rank.source, rank.shape, Aliasing::none);
    }
    ports_.resize(ranks_.size());
    std::map<std::uint32_t, std::uint32_t> numbers;  // hosts may be named by any numbers
    for (std::uint32_t& host : nic_of_)
      host = numbers.insert({host, static_cast<std::uint32_t>(numbers.size())}).first->second;
    nics_.resize(numbers.size());
  }

  Result<Forecast> run() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) advance(r);
    while (!events_.empty()) {
      const Event event = events_.next();
      now_ = event.time;
      if (event.kind() == EventKind::step_done) {
        finish(event.subject, event.slot());
        advance(event.subject);
      } else if (event.kind() == EventKind::head_at_port) {
        enter(event.subject);
      } else {
        land(event.subject);
      }
    }
    return report();
  }

 private:
  struct Rank {
    Shape shape;
    Layouts layouts;
    std::unique_ptr<StepSource> source;
    std::optional<Cursor> cursor;
    Cursor::Mask begun = 0;  // steps under way, and receives that wait for their message
    double processor_free = 0, end = 0;
    Traffic traffic;
  };
  struct Port {
    double out_free = 0, in_free = 0;
  };
  struct Parcel {
    double transfer_s = 0;  // that the message occupies the port in
    double sent_s = 0;      // when its last byte is there, if the port in is free and fast
  };

  struct Arrivals {
    std::uint64_t landed = 0;  // messages that wait for their receive
    Cursor::Mask waiting = 0;  // the receive that waits for the next message
  };

  const Link& link(std::uint32_t from, std::uint32_t to) const {
    return Network::crosses(hosts_, from, to) ? network_->between : network_->inside;
  }
  Port& port(std::uint32_t rank, std::uint32_t other) {
    return network_->nic_shared && Network::crosses(hosts_, rank, other) ? nics_[nic_of_[rank]] : ports_[rank];
  }
  std::uint32_t channel(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t number = channels_.number(from, to);
    if (number == arrivals_.size()) arrivals_.push_back({});
    return number;
  }

  // Starts all that may start now, oldest first.
  void advance(std::uint32_t r) {
    Rank& rank = ranks_[r];
    for (Cursor::Mask ready = ready_of(rank); ready != 0; ready = ready_of(rank)) {
      Cursor::Slot oldest = Cursor::next_slot(ready);
      for (Cursor::Mask left = ready & (ready - 1); left != 0; left &= left - 1)
        if (const Cursor::Slot slot = Cursor::next_slot(left); rank.cursor->index(slot) < rank.cursor->index(oldest))
          oldest = slot;
      start(r, oldest);
    }
  }
  static Cursor::Mask ready_of(const Rank& rank) {
    Cursor::Mask ready = 0;
    for (Cursor::Mask left = rank.cursor->live() & ~rank.begun; left != 0; left &= left - 1)
      if (const Cursor::Slot slot = Cursor::next_slot(left); rank.cursor->ready(slot)) ready |= Cursor::Mask{1} << slot;
    return ready;
  }

  void start(std::uint32_t r, Cursor::Slot slot) {
    Rank& rank = ranks_[r];
    const Step& step = rank.cursor->step(slot);
    rank.begun |= Cursor::Mask{1} << slot;
    if (step.verb == Verb::recv && !take(r, slot)) return;
    const Traffic traffic = traffic_of(step, rank.shape, rank.layouts, payload_->element_bytes);
    rank.traffic += traffic;
    if (step.verb == Verb::local && step.mode == Mode::assign) return finish(r, slot);
    const double reduction =
        network_->gamma_s_per_byte * static_cast<double>(traffic.elements_reduced * payload_->element_bytes);
    const double work = (step.verb == Verb::local ? 0 : network_->overhead_s) + reduction;
    double done = rank.processor_free = std::max(now_, rank.processor_free) + work;
    if (step.verb == Verb::send) done = depart(r, step.peer, done, traffic.bytes_sent);
    events_.add(done, EventKind::step_done, r, slot);
  }

  void finish(std::uint32_t r, Cursor::Slot slot) {
    Rank& rank = ranks_[r];
    rank.begun &= ~(Cursor::Mask{1} << slot);
    rank.cursor->complete(slot);
    rank.end = now_;
  }

  // Puts a message on its way; returns when it has left.
  double depart(std::uint32_t from, std::uint32_t to, double ready, std::uint64_t bytes) {
    const Link& way = link(from, to);
    Port& out = port(from, to);
    const auto size = static_cast<double>(bytes);
    const double transfer = network_->out_s_per_byte(hosts_, from, to) * size, begin = std::max(ready, out.out_free);
    out.out_free = begin + transfer;
    const std::uint32_t number = channel(from, to);
    channels_.push(number) = {network_->in_s_per_byte(hosts_, from, to) * size, begin + way.alpha_s + transfer};
    events_.add(begin + way.alpha_s, EventKind::head_at_port, number);
    return out.out_free;
  }

  // A channel's next head reaches the receiver's port.
  void enter(std::uint32_t number) {
    const auto [from, to] = channels_.pair(number);
    Port& in = port(to, from);
    const Parcel parcel = channels_.front(number);
    in.in_free = std::max(now_, in.in_free) + parcel.transfer_s;
    channels_.pop(number);
    events_.add(std::max(in.in_free, parcel.sent_s), EventKind::landed, number);
  }

  // Takes the message of a receive that may run, or leaves the receive waiting for it.
  bool take(std::uint32_t r, Cursor::Slot slot) {
    Arrivals& arrivals = arrivals_[channel(ranks_[r].cursor->step(slot).peer, r)];
    if (arrivals.landed > 0) return --arrivals.landed, true;
    arrivals.waiting = Cursor::Mask{1} << slot;
    return false;
  }

  void land(std::uint32_t number) {
    Arrivals& arrivals = arrivals_[number];
    ++arrivals.landed;
    if (arrivals.waiting == 0) return;
    const std::uint32_t r = channels_.pair(number).to;
    ranks_[r].begun &= ~arrivals.waiting;
    arrivals.waiting = 0;
    advance(r);
  }

  Result<Forecast> report() const {
    Forecast forecast;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].cursor->finished())
        return failure(ErrorCode::invalid_argument, "rank {} waits forever at step {}", r,
                       ranks_[r].cursor->index(Cursor::next_slot(ranks_[r].cursor->live())));
      forecast.rank_seconds.push_back(ranks_[r].end);
      forecast.ranks.push_back(ranks_[r].traffic);
      forecast.total += ranks_[r].traffic;
      forecast.seconds = std::max(forecast.seconds, ranks_[r].end);
    }
    return forecast;
  }

  const Network* network_;
  const Payload* payload_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> hosts_, nic_of_;  // of each rank
  std::vector<Port> ports_, nics_;
  Channels<Parcel> channels_;       // messages that have not reached the port in
  std::vector<Arrivals> arrivals_;  // by channel
  Events events_;
  double now_ = 0;
};

[[gnu::noinline]] Result<Forecast> simulated(const World& world, const Payload& payload, const Network& network) {
  return Simulation(world, payload, network).run();
}

}  // namespace

Result<Forecast> simulate(const World& world, const Payload& payload, const Network& network) {
  if (world.size() == 0) return failure(ErrorCode::invalid_argument, "a world of no ranks");
  const DefaultFloatMode mode;
  return simulated(world, payload, network);
}

Result<Forecast> simulate(const Recipe& recipe, const Payload& payload, const Network& network) {
  if (Status status = check(recipe); !status.ok()) return status;
  const bool pair = recipe.collective == Collective::send || recipe.collective == Collective::recv;
  if (pair && recipe.world > 2)
    return failure(ErrorCode::unsupported, "{} is simulated in a world of 2, not of {}", name_of(recipe.collective),
                   recipe.world);
  // Few steps of each rank at a time where the world is large.
  const std::uint32_t window_steps = recipe.world <= 256 ? limits::window_steps : 4 * limits::lookahead_steps;
  return simulate(RecipeWorld(recipe, window_steps), payload, network);
}

Result<Forecast> simulate(const Recipe& recipe, std::uint64_t count, std::uint64_t element_bytes,
                          const Network& network) {
  return simulate(recipe, Payload{layouts_of_count(count), element_bytes}, network);
}

}  // namespace gradsync
