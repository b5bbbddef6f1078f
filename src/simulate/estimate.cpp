#include "simulate/estimate.hpp"

#include <algorithm>
#include <vector>

#include "base/float_mode.hpp"
#include "base/limits.hpp"
#include "schedule/cursor.hpp"
#include "simulate/events.hpp"

namespace gradsync {
namespace {

// One rank's walk, by the cursor and the rules of forecast.hpp. Only the other end of its messages is imagined.
class Image {
 public:
  Image(const Recipe& recipe, std::uint32_t rank, const Payload& payload, const Network& network)
      : recipe_(&recipe),
        rank_(rank),
        network_(&network),
        element_bytes_(payload.element_bytes),
        shape_(shape_of(recipe, rank)),
        layouts_(payload.layouts(recipe, shape_, rank)),
        steps_(recipe, rank, limits::window_steps),
        cursor_(steps_, shape_, Aliasing::none) {}

  void walk() {
    for (start_ready(); !cursor_.finished(); start_ready()) {
      if (events_.empty()) imagine_early_message();
      const Event event = events_.next();
      now_ = event.time;
      if (event.kind() == EventKind::step_done) finish(event.slot());
      else ++landed_;
    }
  }

  double end() const { return now_; }
  double busy() const {
    return std::max({processor_busy_, own_.out_busy, own_.in_busy, shared_.out_busy, shared_.in_busy});
  }
  double shared_port_busy() const { return shared_.out_busy; }
  std::uint64_t messages() const { return messages_; }

 private:
  void start_ready() {
    for (bool again = true; again;) {
      again = false;
      cursor_.for_each_live([&](Cursor::Slot slot) {
        if ((begun_ >> slot & 1u) || !cursor_.ready(slot)) return true;
        const Step step = cursor_.step(slot);
        if (step.verb == Verb::recv && landed_ == 0) return true;
        start(slot, step);
        again = step.verb == Verb::local && step.mode == Mode::assign;  // done already
        return !again;
      });
    }
  }

  void start(Cursor::Slot slot, const Step& step) {
    const Traffic traffic = traffic_of(step, shape_, layouts_, element_bytes_);
    if (step.verb == Verb::local && step.mode == Mode::assign) return finish(slot);
    const double reduction =
        network_->gamma_s_per_byte * static_cast<double>(traffic.elements_reduced * element_bytes_);
    const double work = reduction + (step.verb == Verb::local ? 0 : network_->overhead_s);
    processor_busy_ += work;
    double done = processor_free_ = std::max(now_, processor_free_) + work;
    if (step.verb == Verb::send) done = depart(step, traffic.bytes_sent);
    if (step.verb == Verb::recv) --landed_, port(step).in_busy += in_seconds(step, traffic.bytes_received);
    begun_ |= Cursor::Mask{1} << slot;
    events_.add(done, EventKind::step_done, 0, slot);
  }

  // What is sent is also what arrives: the peers do the same at the same time.
  double depart(const Step& step, std::uint64_t bytes) {
    Port& way = port(step);
    const double transfer = network_->out_s_per_byte(recipe_->hosts, rank_, step.peer) * static_cast<double>(bytes),
                 begin = std::max(processor_free_, way.out_free);
    way.out_free = begin + transfer;
    way.out_busy += transfer;
    ++messages_;
    way.in_free = std::max(begin + link(step).alpha_s, way.in_free) + in_seconds(step, bytes);
    events_.add(way.in_free, EventKind::landed, 0);
    return way.out_free;
  }

  // The rank waits for more messages than it has sent: the peer sent this one when all began.
  void imagine_early_message() {
    cursor_.for_each_live([&](Cursor::Slot slot) {
      const Step& step = cursor_.step(slot);
      if (step.verb != Verb::recv || (begun_ >> slot & 1u) || !cursor_.ready(slot)) return true;
      const Traffic traffic = traffic_of(step, shape_, layouts_, element_bytes_);
      double& in_free = port(step).in_free;
      in_free = std::max(network_->overhead_s + link(step).alpha_s, in_free) + in_seconds(step, traffic.bytes_received);
      events_.add(std::max(now_, in_free), EventKind::landed, 0);
      return false;
    });
    GRADSYNC_CHECK(!events_.empty());  // a live step is ready, under way, or waits for one that is
  }

  void finish(Cursor::Slot slot) {
    begun_ &= ~(Cursor::Mask{1} << slot);
    cursor_.complete(slot);
  }

  bool crosses(const Step& step) const { return Network::crosses(recipe_->hosts, rank_, step.peer); }
  const Link& link(const Step& step) const { return crosses(step) ? network_->between : network_->inside; }

  double in_seconds(const Step& step, std::uint64_t bytes) const {
    return network_->in_s_per_byte(recipe_->hosts, step.peer, rank_) * static_cast<double>(bytes);
  }

  struct Port {
    double out_free = 0, in_free = 0, out_busy = 0, in_busy = 0;
  };
  Port& port(const Step& step) { return network_->nic_shared && crosses(step) ? shared_ : own_; }

  const Recipe* recipe_;
  std::uint32_t rank_;
  const Network* network_;
  std::uint64_t element_bytes_;
  Shape shape_;
  Layouts layouts_;
  GeneratedSteps steps_;
  Cursor cursor_;
  Cursor::Mask begun_ = 0;
  Events events_;
  double now_ = 0, processor_free_ = 0, processor_busy_ = 0;
  Port own_, shared_;  // shared_: of the host, with this rank's part alone
  std::uint64_t messages_ = 0, landed_ = 0;
};

// A rank of the host whose ports are slowest, where hosts differ; else rank 0.
std::uint32_t slowest_rank(const Recipe& recipe, const Network& network) {
  std::uint32_t slowest = 0;
  const auto slowness = [&](std::uint32_t rank) {
    const HostPort& port = network.ports[recipe.hosts[rank]];
    return std::max(port.out_s_per_byte, port.in_s_per_byte);
  };
  for (std::uint32_t r = 0; !network.ports.empty() && r < recipe.hosts.size(); ++r)
    if (recipe.hosts[r] < network.ports.size() && recipe.hosts[slowest] < network.ports.size() &&
        slowness(r) > slowness(slowest))
      slowest = r;
  return slowest;
}

// The ranks that differ: the first ones, the root and its neighbours, a middle one, the last; and, for the port they
// share, up to 64 of the host of `focus`.
std::vector<std::uint32_t> sample_of(const Recipe& recipe, std::uint32_t focus) {
  const std::uint32_t n = recipe.world;
  std::vector<std::uint32_t> ranks{0, recipe.root, n / 2, n - 1, focus};
  for (std::uint32_t r : {1u, recipe.root + 1}) ranks.push_back(r % n);
  if (!recipe.hosts.empty())
    for (std::uint32_t r = 1; r < n && ranks.size() < 64; ++r)
      if (recipe.hosts[r] == recipe.hosts[focus]) ranks.push_back(r);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

[[gnu::noinline]] Estimate walked(const Recipe& recipe, const Payload& payload, const Network& network) {
  Estimate result;
  double shared_port_busy = 0,
         one_rank_busy = 0;  // of the port out of the host of `focus`, by all its ranks and by the busiest
  const std::uint32_t focus = slowest_rank(recipe, network);
  const std::vector<std::uint32_t> ranks = sample_of(recipe, focus);
  for (std::uint32_t r : ranks) {
    Image image(recipe, r, payload, network);
    image.walk();
    result.seconds = std::max(result.seconds, image.end());
    result.at_least_seconds = std::max(result.at_least_seconds, image.busy());
    result.messages += image.messages();
    if (!network.nic_shared || recipe.hosts.empty() || recipe.hosts[r] != recipe.hosts[focus]) continue;
    shared_port_busy += image.shared_port_busy();
    one_rank_busy = std::max(one_rank_busy, image.shared_port_busy());
  }
  result.messages = result.messages * recipe.world / ranks.size();
  result.at_least_seconds = std::max(result.at_least_seconds, shared_port_busy);
  result.seconds =
      std::max(result.seconds + shared_port_busy - one_rank_busy, result.at_least_seconds);  // the others' turns
  return result;
}

}  // namespace

Estimate estimate(const Recipe& recipe, const Payload& payload, const Network& network) {
  const DefaultFloatMode mode;
  return walked(recipe, payload, network);
}

}  // namespace gradsync
