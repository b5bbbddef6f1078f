#include "comm/links.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "algorithms/catalogue.hpp"
#include "base/float_mode.hpp"
#include "base/limits.hpp"
#include "schedule/layouts.hpp"
#include "simulate/shards.hpp"

namespace gradsync {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kChange = 1.2;       // a smaller change of a time is none
constexpr double kWorthIt = 0.85;     // of the time with equal parts: uneven ones must take less
constexpr double kCloseTo = 1.15;     // the median: taken for it
constexpr std::uint32_t kAlarms = 2;  // windows in a row that must have changed

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double ratio(double a, double b) { return a > b ? a / b : b / a; }

template <class Visit>
void for_each_time(std::vector<HostPort>& ports, Visit&& visit) {
  for (HostPort& port : ports) visit(port.out_s_per_byte), visit(port.in_s_per_byte);
}

[[gnu::noinline]] std::vector<HostPort> planned_for(const std::vector<HostPort>& measured) {
  std::vector<HostPort> ports = measured;
  std::vector<double> times, bandwidth;
  for_each_time(ports, [&](double time) { times.push_back(time); });
  if (ports.size() < 3 || *std::min_element(times.begin(), times.end()) <= 0) return {};
  const double usual = median(times);
  for_each_time(ports, [&](double& time) { time = ratio(time, usual) <= kCloseTo ? usual : time; });
  for (const HostPort& port : ports) bandwidth.push_back(1 / std::max(port.out_s_per_byte, port.in_s_per_byte));
  if (least_seconds_a_byte(bandwidth) > kWorthIt * even_seconds_a_byte(bandwidth)) return {};
  return ports;
}

}  // namespace

std::vector<HostPort> ports_to_plan_for(const std::vector<HostPort>& measured) {
  const DefaultFloatMode mode;
  return planned_for(measured);
}

bool differ(const std::vector<HostPort>& a, const std::vector<HostPort>& b) {
  if (a.size() != b.size()) return true;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (ratio(a[i].out_s_per_byte, b[i].out_s_per_byte) > kChange ||
        ratio(a[i].in_s_per_byte, b[i].in_s_per_byte) > kChange)
      return true;
  return false;
}

// One measurement, or one that the times did not ask for: then its operations do nothing.
struct Links::Round {
  Call call;  // on whose behalf
  Deadline deadline;
  bool active = false;
  // Bytes a second, by host and distance, and last the seconds that a message takes a processor: this rank's own until they
  // are agreed on.
  std::vector<double> rates;
  std::vector<TimePoint> times;  // of the messages that have come
};

Links::Links(Setup setup)
    : rank_(setup.rank),
      size_(setup.size),
      hosts_(std::move(setup.hosts)),
      plans_(std::move(setup.plans)),
      known_(std::move(setup.known)),
      overhead_s_(setup.overhead_s) {
  for (std::uint32_t r = 0; r < hosts_.size(); ++r)
    if (hosts_[r] == firsts_.size()) firsts_.push_back(r);
  if (firsts_.size() > limits::links_hosts_max) firsts_.clear();
  asked_ = !known_.empty();
  if (matter() && asked_) plans_->set_ports(ports_to_plan_for(known_), overhead_s_);
}

double Links::overhead_s() const {
  std::lock_guard lock(mutex_);
  return overhead_s_;
}

bool Links::plans_in_turn(Collective collective, std::uint64_t bytes) const {
  return matter() && collective == Collective::all_reduce && bytes >= limits::uneven_call_bytes_min;
}

std::vector<HostPort> Links::known() const {
  std::lock_guard lock(mutex_);
  return known_;
}

// Calls -------------------------------------------------------------------------------------------------------------

namespace {

std::uint64_t bytes_of(const Request& call) { return call.call.count * size_of(call.call.dtype); }

}  // namespace

bool Links::prepare(Request& call, const CallOptions& options) {
  const std::uint64_t bytes = bytes_of(call);
  if (options.algorithm != Algorithm::automatic || !plans_in_turn(call.call.collective, bytes)) return false;
  const PlanBook::Wanted wanted{Collective::all_reduce, 0, bytes, options};
  call.settle = [plans = plans_, wanted](Request& request) -> Status {
    auto schedule = plans->plan_in_turn(wanted);
    if (!schedule.ok()) return schedule.status();
    const Recipe& recipe = (*schedule)->recipe;
    request.input_layout = request.output_layout = layout_for(recipe, (*schedule)->shape, request.call.count);
    request.call.algorithm = recipe.algorithm;
    request.call.segments = recipe.segments;
    request.call.counts_hash = hash_of_shards(recipe.shards);
    request.schedule = *std::move(schedule);
    return {};
  };
  if (bytes < limits::links_call_bytes_min) return false;
  call.took = [self = shared_from_this(), bytes](Nanoseconds time) {
    self->observe(bytes, std::chrono::duration<double>(time).count());
  };
  return true;
}

std::vector<Request> Links::before(const Request& call) {
  std::lock_guard lock(mutex_);
  const bool first = !asked_;
  const std::uint64_t place = calls_ % limits::links_window_calls;
  if (given_ || (!first && (calls_ < limits::links_window_calls || (place != 0 && place != limits::links_trial_calls))))
    return {};
  given_ = true;
  auto round = std::make_shared<Round>(Round{call.call, call.deadline, first, {}, {}});
  std::vector<Request> requests;
  if (!first) requests.push_back(look(round, place == 0));
  if (first || place == 0) append_measurement(requests, round);
  return requests;
}

void Links::submitted() {
  std::lock_guard lock(mutex_);
  asked_ = true;
  given_ = false;
  ++calls_;
}

std::vector<Request> Links::measurement(Deadline deadline) {
  std::vector<Request> requests;
  if (!matter()) return requests;
  Call call;
  call.algorithm = Algorithm::recursive_doubling;  // of a barrier
  append_measurement(requests, std::make_shared<Round>(Round{call, deadline, true, {}, {}}));
  return requests;
}

void Links::measurement_submitted() {
  std::lock_guard lock(mutex_);
  asked_ = true;
}

// The library's own operations ----------------------------------------------------------------------------------------

// Hosts at 1, 2 and half the way round: each port is seen with up to three others, of which the middle one counts, so that
// one slow host is not taken for two, nor what one rank slept through for a fast link.
std::uint32_t Links::distance(std::size_t number) const {
  const auto hosts = static_cast<std::uint32_t>(firsts_.size());
  return number < 2 ? static_cast<std::uint32_t>(number) + 1 : std::max(3u, hosts / 2);
}

std::size_t Links::distances() const { return std::min<std::size_t>(firsts_.size() - 1, limits::links_distances_max); }

void Links::append_measurement(std::vector<Request>& to, const std::shared_ptr<Round>& round) {
  round->rates.assign(firsts_.size() * distances() + 1, 0);
  for (std::size_t d = 0; d < distances(); ++d) {
    to.push_back(barrier(round, to.size()));
    to.push_back(shift(round, to.size(), d));
  }
  to.push_back(barrier(round, to.size()));
  to.push_back(patter(round, to.size()));
  to.push_back(agreement(round, to.size(), ReduceOp::max, round->rates.size()));
  Request& last = to.back();
  last.settle = [this, self = shared_from_this(), round](Request& request) -> Status {
    if (!round->active) return skip(request), Status{};
    std::copy(round->rates.begin(), round->rates.end(), static_cast<double*>(request.output));
    return {};
  };
  last.took = [self = shared_from_this(), round, values = static_cast<const double*>(last.output)](Nanoseconds) {
    if (round->active) self->conclude({values, values + round->rates.size()});
  };
}

// Named after the call that it precedes, so that a mismatch between ranks speaks of what the user called.
Request Links::own(const Round& round, std::size_t number) const {
  Request request;
  request.call.algorithm = Algorithm::recursive_doubling;  // a barrier unless changed
  request.on_behalf_of = round.call;
  request.on_behalf_of->algorithm = Algorithm::automatic;
  request.on_behalf_of->segments = 1;
  request.on_behalf_of->tag = static_cast<std::uint32_t>(number) + 1;
  request.contributions = size_;
  request.deadline = round.deadline;
  return request;
}

void Links::skip(Request& request) const {
  auto nothing = std::make_shared<Schedule>();
  nothing->recipe = {Collective::barrier, Algorithm::recursive_doubling, size_, 0, 1, {}};
  nothing->rank = rank_;
  nothing->shape = {1, {0, 1}, {0, 1}, 0};
  request.schedule = std::move(nothing);
  request.input_layout = request.output_layout = Layout::even(0, 1);
}

Request Links::barrier(const std::shared_ptr<Round>& round, std::size_t number) {
  Request request = own(*round, number);
  request.schedule = plans_->plan({Collective::barrier, 0, 0, {.algorithm = Algorithm::recursive_doubling}});
  request.input_layout = request.output_layout = Layout::even(0, request.schedule->shape.chunks);
  request.settle = [this, self = shared_from_this(), round](Request& barrier) -> Status {
    if (!round->active) skip(barrier);
    return {};
  };
  return request;
}

// An operation of the hosts' first ranks; of the others nothing. What comes in is timed.
Request Links::exchange(const std::shared_ptr<Round>& round, std::size_t number,
                        std::function<void(Emit&, Request&)> emit) {
  Request request = own(*round, number);
  request.call.collective = Collective::all_to_all;
  request.call.algorithm = Algorithm::direct;
  skip(request);
  if (firsts_[hosts_[rank_]] != rank_) return request;
  request.settle = [round, emit = std::move(emit), self = shared_from_this()](Request& call) -> Status {
    if (!round->active) return {};
    round->times.clear();
    auto schedule = std::make_shared<Schedule>(*call.schedule);
    Emit out(schedule->steps);
    emit(out, call);
    const std::uint32_t chunks = call.input_layout.chunks();
    schedule->shape = {chunks, {0, chunks}, {0, chunks}, 0};
    call.schedule = std::move(schedule);
    return {};
  };
  request.received = [round](std::uint64_t messages) {
    round->times.resize(round->times.size() + messages, std::chrono::steady_clock::now());
  };
  return request;
}

// Hosts send to those `distance` on, all at once: several messages in a row on one way. From one's end to the next's it
// takes what the slower port takes, whenever the ranks began; the median, as a rank may have been asleep at an end.
Request Links::shift(const std::shared_ptr<Round>& round, std::size_t number, std::size_t distance_number) {
  const auto hosts = static_cast<std::uint32_t>(firsts_.size());
  const std::uint32_t host = hosts_[rank_], step = distance(distance_number);
  Request request = exchange(round, number, [=, this](Emit& out, Request& call) {
    std::vector<std::uint64_t> sizes(1 + limits::links_timed_messages, limits::links_timed_bytes);
    sizes[0] = limits::links_first_bytes;
    call.input_layout = call.output_layout = Layout::given_blocks(sizes);
    auto memory = std::make_shared<std::vector<std::byte>>(2 * call.input_layout.elements());
    call.input = memory->data();
    call.output = memory->data() + memory->size() / 2;
    call.owned_input = std::move(memory);
    for (std::uint32_t i = 0; i < sizes.size(); ++i) {
      out.send(firsts_[(host + step) % hosts], {Space::input, {i, 1}});
      out.recv(firsts_[(host + hosts - step) % hosts], {Space::output, {i, 1}});
    }
  });
  request.took = [=, this, self = shared_from_this()](Nanoseconds) {
    if (!round->active || firsts_[host] != rank_) return;
    std::vector<double> each;
    for (std::size_t i = 1; i < round->times.size(); ++i)
      each.push_back(std::max(1e-9, std::chrono::duration<double>(round->times[i] - round->times[i - 1]).count()));
    round->rates[host * distances() + distance_number] = limits::links_timed_bytes / median(std::move(each));
  };
  return request;
}

// Empty messages to the next hosts in turn, as many as a pipeline has: what each costs a processor, which the processes of a
// crowded machine share.
Request Links::patter(const std::shared_ptr<Round>& round, std::size_t number) {
  const auto hosts = static_cast<std::uint32_t>(firsts_.size());
  const std::uint32_t host = hosts_[rank_];
  Request request = exchange(round, number, [=, this](Emit& out, Request&) {
    for (std::uint32_t i = 0; i < limits::links_empty_messages; ++i) {
      const std::uint32_t step = distance(i % distances());
      out.send(firsts_[(host + step) % hosts], {Space::input, {0, 1}});
      out.recv(firsts_[(host + hosts - step) % hosts], {Space::output, {0, 1}});
    }
  });
  request.took = [=, this, self = shared_from_this()](Nanoseconds) {
    if (!round->active || firsts_[host] != rank_) return;
    const double seconds = std::chrono::duration<double>(round->times.back() - round->times.front()).count();
    round->rates.back() = seconds / (2 * limits::links_empty_messages);  // one sent for each received
  };
  return request;
}

// An all-reduce of `count` f64, in memory of its own.
Request Links::agreement(const std::shared_ptr<Round>& round, std::size_t number, ReduceOp op,
                         std::size_t count) const {
  Request request = own(*round, number);
  auto memory = std::make_shared<std::vector<double>>(count);
  request.call.collective = Collective::all_reduce;
  request.call.dtype = DType::f64;
  request.call.op = op;
  request.input = request.output = memory->data();
  request.owned_input = memory;
  request.schedule = plans_->plan({Collective::all_reduce, 0, 0, {.algorithm = Algorithm::recursive_doubling}});
  request.input_layout = request.output_layout = layout_for(request.schedule->recipe, request.schedule->shape, count);
  return request;
}

// Times -----------------------------------------------------------------------------------------------------------------

// The fastest rank's fastest call: the last rank to come has waited for no other, and one call of some is not disturbed.
Request Links::look(const std::shared_ptr<Round>& round, bool at_end) {
  Request request = agreement(round, 0, ReduceOp::min, 1);
  request.settle = [this, self = shared_from_this()](Request& call) -> Status {
    std::lock_guard lock(mutex_);
    *static_cast<double*>(call.output) = fastest_ > 0 ? fastest_ : kNever;
    return {};
  };
  request.took = [self = shared_from_this(), round, at_end,
                  value = static_cast<const double*>(request.output)](Nanoseconds) {
    if (at_end) round->active = self->end_window(*value);
    else self->end_trial(*value);
  };
  return request;
}

void Links::observe(std::uint64_t bytes, double seconds) {
  std::lock_guard lock(mutex_);
  const auto magnitude = static_cast<int>(std::bit_width(bytes));
  if (magnitude_ == 0) magnitude_ = magnitude;
  if (magnitude != magnitude_ || seconds <= 0) return;
  const double each = seconds / static_cast<double>(bytes);
  fastest_ = fastest_ > 0 ? std::min(fastest_, each) : each;
}

// Whether to measure again.
bool Links::end_window(double seconds_a_byte) {
  std::lock_guard lock(mutex_);
  fastest_ = 0;
  if (seconds_a_byte == kNever) {  // no such call: compare others
    magnitude_ = 0;
    usual_ = 0;
    return false;
  }
  if (usual_ == 0) usual_ = seconds_a_byte;
  if (trial_ == Trial::uneven) {
    trial_ = Trial::even;
    plans_->set_ports({}, overhead_s_);
    return false;
  }
  if (quiet_ > 0) {
    --quiet_;
    return false;
  }
  alarms_ = ratio(seconds_a_byte, usual_) > kChange ? alarms_ + 1 : 0;
  return alarms_ >= kAlarms;
}

// What was measured in a moment when ranks were held up may be wrong: uneven parts stay if they are faster.
void Links::end_trial(double seconds_a_byte) {
  std::lock_guard lock(mutex_);
  if (trial_ != Trial::even) return;
  trial_ = Trial::none;
  fastest_ = 0;
  if (seconds_a_byte <= usual_) usual_ = seconds_a_byte;
  else plans_->set_ports(ports_to_plan_for(known_), overhead_s_);
}

void Links::conclude(const std::vector<double>& agreed) {
  std::vector<HostPort> ports(firsts_.size());
  std::vector<std::vector<double>> out(ports.size()), in(ports.size());
  for (std::size_t to = 0; to < ports.size(); ++to)
    for (std::size_t d = 0; d < distances(); ++d) {
      const std::size_t from = (to + ports.size() - distance(d)) % ports.size();
      in[to].push_back(agreed[to * distances() + d]);
      out[from].push_back(agreed[to * distances() + d]);
    }
  for (std::size_t h = 0; h < ports.size(); ++h) ports[h] = {1 / median(out[h]), 1 / median(in[h])};
  std::lock_guard lock(mutex_);
  alarms_ = 0;
  usual_ = fastest_ = 0;
  if (!known_.empty() && !differ(known_, ports)) {  // a false alarm: something else than the links
    quiet_ = quiet_next_;
    quiet_next_ = std::min(2 * quiet_next_, limits::links_windows_quiet);
    return;
  }
  quiet_next_ = 1;
  known_ = ports;
  overhead_s_ = agreed.back();
  std::vector<HostPort> planned = ports_to_plan_for(ports);
  trial_ = planned.empty() ? Trial::none : Trial::uneven;
  plans_->set_ports(std::move(planned), overhead_s_);
}

}  // namespace gradsync
