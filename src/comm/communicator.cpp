#include <sched.h>

#include <algorithm>
#include <array>

#include "base/random.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/inspect.hpp"
#include "comm/measure.hpp"
#include "comm/processes.hpp"
#include "comm/threads.hpp"

namespace gradsync {
namespace {

std::uint32_t cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
}

void check_duration(const char* name, std::chrono::nanoseconds value) {
  if (value.count() < 0)
    throw Error(failure(ErrorCode::invalid_argument, "{} is {:g} s, expected seconds above 0, or 0 for the default",
                        name, std::chrono::duration<double>(value).count()));
}

// The timeout of calls that name none.
std::chrono::nanoseconds timeout_of(const Options& options) {
  check_duration("timeout", options.timeout);
  check_duration("start_timeout", options.start_timeout);
  return options.timeout.count() > 0 ? options.timeout : std::chrono::nanoseconds(limits::timeout_default);
}

std::unique_ptr<Communicator::Impl> join_group(std::shared_ptr<Site> site, std::vector<std::uint32_t> members,
                                               std::uint32_t me, std::uint64_t epoch, std::chrono::nanoseconds timeout,
                                               const Links* parent = nullptr, std::vector<HostPort> known = {}) {
  auto impl = std::make_unique<Communicator::Impl>();
  std::vector<std::uint32_t> seen;
  for (std::uint32_t member : members) {
    const std::uint32_t host = site->hosts()[member];
    auto at = std::find(seen.begin(), seen.end(), host);
    impl->hosts.push_back(static_cast<std::uint32_t>(at - seen.begin()));
    if (at == seen.end()) seen.push_back(host);
  }
  const auto neighbours =
      static_cast<std::uint32_t>(std::count(impl->hosts.begin(), impl->hosts.end(), impl->hosts[me]));
  impl->cores = cores();
  Result<Site::Line> line = site->open(epoch, members, me);
  throw_if_failed(line.status());
  impl->rank = me;
  impl->timeout = timeout;
  impl->plans = std::make_shared<PlanBook>(me, static_cast<std::uint32_t>(members.size()), impl->hosts, site->kind());
  impl->links = std::make_shared<Links>(Links::Setup{me, static_cast<std::uint32_t>(members.size()), impl->hosts,
                                                     impl->plans, std::move(known), parent ? parent->overhead_s() : 0});
  impl->group = std::make_shared<Group>(Group::Setup{me, static_cast<std::uint32_t>(members.size()), epoch,
                                                     neighbours <= impl->cores, std::move(line->transport),
                                                     std::move(line->notifier)});
  impl->members = std::move(members);
  impl->site = std::move(site);
  return impl;
}

std::vector<std::uint32_t> everyone(std::uint32_t size) {
  std::vector<std::uint32_t> ranks(size);
  for (std::uint32_t i = 0; i < size; ++i) ranks[i] = i;
  return ranks;
}

// For calls that need no peer and would not notice by themselves that the communicator has ended.
Communicator::Impl& usable(const std::unique_ptr<Communicator::Impl>& impl) {
  throw_if_failed(alive(impl).group->status());
  return *impl;
}

constexpr std::uint64_t kThreadsEpoch = 1;

}  // namespace

// The group refuses a call beyond its limit before the call has a number, so that the ranks' numbers stay equal.
Work::State Communicator::Impl::state_of(const Asked& asked) {
  Request request = make_request({rank, size(), timeout, plans.get()}, asked);
  Work::State state{group, site, std::make_shared<Completion>(), 0, request.deadline.when()};
  const bool watched = links->prepare(request, asked.options);
  if (watched)
    for (Request& own : links->before(request)) submit(std::move(own), std::make_shared<Completion>());
  state.sequence = submit(std::move(request), state.completion);
  if (watched) links->submitted();
  return state;
}

std::uint64_t Communicator::Impl::submit(Request request, std::shared_ptr<Completion> completion) {
  Result<std::uint64_t> sequence = group->submit(std::move(request), std::move(completion));
  throw_if_failed(sequence.status());
  return *sequence;
}

// Waits for the end of a measurement. Every rank of the group is here.
void Communicator::Impl::measure_links() {
  const Deadline deadline = Deadline::after(timeout);
  Work::State state{group, site, nullptr, 0, deadline.when()};
  for (Request& own : links->measurement(deadline)) {
    state.completion = std::make_shared<Completion>();
    state.sequence = submit(std::move(own), state.completion);
  }
  if (!state.completion) return;
  links->measurement_submitted();
  throw_if_failed(gradsync::finish(state));
}

int Communicator::Impl::receive(const Asked& asked) {
  const Work::State state = state_of(asked);
  throw_if_failed(gradsync::finish(state));
  return state.completion->source();
}

Work Communicator::Impl::start(const Asked& asked) {
  auto state = std::make_shared<Work::State>(state_of(asked));
  if (!asked.options.moved_by_waiter) site->progress().serve(group);
  return Work(std::move(state));
}

Communicator Communicator::create(const Options& options) {
  const auto timeout = timeout_of(options);
  if (options.rank < 0 && options.size < 0 && options.rendezvous.empty() &&
      !options.store) {  // started by hand: a world of one
    auto site = make_thread_site(make_thread_world(1, limits::ring_bytes_default), 0);
    return Communicator(join_group(std::move(site), {0}, 0, kThreadsEpoch, timeout));
  }
  if (options.transport == TransportKind::loopback)
    throw Error(
        failure(ErrorCode::invalid_argument,
                "the transport is loopback, which is for threads of one process; processes use auto, shm or tcp"));
  Result<Processes> joined = join_processes(options);
  throw_if_failed(joined.status());
  return Communicator(
      join_group(std::move(joined->site), everyone(joined->size), joined->rank, joined->epoch, timeout));
}

std::vector<Communicator> Communicator::threads(std::uint32_t size, const Options& options) {
  if (size == 0 || size > limits::ranks_max)
    throw Error(
        failure(ErrorCode::invalid_argument, "a world of {} threads; expected 1 to {}", size, limits::ranks_max));
  const auto timeout = timeout_of(options);
  auto world = make_thread_world(size, limits::ring_bytes_default);
  std::vector<Communicator> ranks;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    ranks.push_back(
        Communicator(join_group(make_thread_site(world, rank), everyone(size), rank, kThreadsEpoch, timeout)));
  return ranks;
}

Communicator::Communicator() = default;
Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  if (this != &other) {
    destroy();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Communicator::~Communicator() { destroy(); }

int Communicator::rank() const { return static_cast<int>(alive(impl_).rank); }
int Communicator::size() const { return static_cast<int>(alive(impl_).size()); }
const std::vector<std::uint32_t>& Communicator::hosts() const { return alive(impl_).hosts; }
Counters Communicator::counters() const { return alive(impl_).group->counters(); }
Status Communicator::status() const { return alive(impl_).group->status(); }

std::string Communicator::describe(int rank) const {
  const Impl& impl = alive(impl_);
  if (rank < 0 || rank >= size())
    throw Error(failure(ErrorCode::invalid_argument, "describe: rank {} of {} ranks", rank, size()));
  return impl.site->describe(impl.members[static_cast<std::size_t>(rank)]);
}

void Communicator::tune() {
  Impl& impl = usable(impl_);
  impl.plans->set_network(measure_network(*this, impl.plans->network()));
  impl.measure_links();
}

Network Inspector::network(Communicator& communicator) { return usable(communicator.impl_).plans->network(); }
Recipe Inspector::chosen(Communicator& communicator, Collective collective, std::uint64_t bytes) {
  Communicator::Impl& impl = usable(communicator.impl_);
  const PlanBook::Wanted wanted{collective, 0, bytes, {}};
  if (!impl.links->plans_in_turn(collective, bytes)) return impl.plans->plan(wanted)->recipe;
  const auto schedule = impl.plans->plan_in_turn(wanted);
  throw_if_failed(schedule.status());
  return (*schedule)->recipe;
}
std::vector<HostPort> Inspector::ports(Communicator& communicator) { return usable(communicator.impl_).links->known(); }
void Inspector::measure_links(Communicator& communicator) { usable(communicator.impl_).measure_links(); }

Memory Communicator::allocate(std::size_t bytes) {
  Result<Memory> memory = usable(impl_).site->pages().allocate(bytes);
  throw_if_failed(memory.status());
  return *std::move(memory);
}

void Communicator::abort(const std::string& why) {
  Impl& impl = alive(impl_);
  if (impl.group->closed()) throw_if_failed(impl.group->status());
  impl.group->abort(
      peer_failure(ErrorCode::aborted, static_cast<int>(impl.rank), "aborted by rank {}: {}", impl.rank, why));
}

void Communicator::destroy() {
  if (!impl_) return;
  impl_->group->close();
  impl_->site->progress().forget(impl_->group);
}

// What this group knows of the ports of a new group's hosts, by the numbers that they have there.
static std::vector<HostPort> known_to(const Communicator::Impl& impl, const std::vector<std::uint32_t>& ranks) {
  const std::vector<HostPort> known = impl.links->known();
  if (known.empty()) return {};
  std::vector<std::uint32_t> hosts;
  std::vector<HostPort> ports;
  for (std::uint32_t rank : ranks) {
    const std::uint32_t host = impl.hosts[rank];
    if (std::find(hosts.begin(), hosts.end(), host) != hosts.end()) continue;
    hosts.push_back(host);
    ports.push_back(known[host]);
  }
  return ports;
}

// Split ------------------------------------------------------------------------------------------------------------

Communicator Communicator::split(int color, int key) {
  Impl& impl = usable(impl_);
  using Wish = std::array<std::int64_t, 2>;
  std::vector<Wish> wishes(impl.size());
  const Wish mine = {color, key};
  Asked asked{.collective = Collective::all_gather,
              .input = ConstView(mine.data(), 2, DType::i64),
              .output = View{wishes.data(), 2 * wishes.size(), DType::i64}};
  const Work::State state = impl.state_of(asked);
  if (Status status = gradsync::finish(state); !status.ok()) {
    status.message = "split: " + status.message;  // what is exchanged is the library's business
    throw Error(std::move(status));
  }
  if (color < 0) return {};
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t r = 0; r < impl.size(); ++r)
    if (wishes[r][0] == color) chosen.push_back(r);
  std::stable_sort(chosen.begin(), chosen.end(), [&](auto a, auto b) { return wishes[a][1] < wishes[b][1]; });
  const auto me = static_cast<std::uint32_t>(std::find(chosen.begin(), chosen.end(), impl.rank) - chosen.begin());
  std::vector<HostPort> known = known_to(impl, chosen);
  for (std::uint32_t& r : chosen) r = impl.members[r];
  const std::uint64_t epoch =
      mix64(mix64(impl.group->epoch() ^ mix64(state.sequence)) + static_cast<std::uint64_t>(color));
  return Communicator(
      join_group(impl.site, std::move(chosen), me, epoch, impl.timeout, impl.links.get(), std::move(known)));
}

Communicator Communicator::group(std::span<const int> ranks) {
  Impl& impl = usable(impl_);
  std::vector<std::uint32_t> chosen, here;
  std::uint64_t hash = mix64(ranks.size());
  for (int rank : ranks) {
    if (rank < 0 || rank >= size())
      throw Error(failure(ErrorCode::invalid_argument, "group: rank {} is outside of the world of {}", rank, size()));
    const std::uint32_t job_rank = impl.members[static_cast<std::size_t>(rank)];
    if (std::find(chosen.begin(), chosen.end(), job_rank) != chosen.end())
      throw Error(failure(ErrorCode::invalid_argument, "group: rank {} is listed twice", rank));
    chosen.push_back(job_rank);
    here.push_back(static_cast<std::uint32_t>(rank));
    hash = mix64(hash ^ static_cast<std::uint64_t>(rank));
  }
  const auto at = std::find(chosen.begin(), chosen.end(), impl.members[impl.rank]);
  if (at == chosen.end())
    throw Error(failure(ErrorCode::invalid_argument, "group: rank {} calls it but is not listed", impl.rank));
  const auto me = static_cast<std::uint32_t>(at - chosen.begin());
  std::uint64_t use = 0;
  {
    std::lock_guard lock(impl.groups_mutex);
    use = ++impl.groups_made[hash];
  }
  const std::uint64_t epoch = mix64(mix64(impl.group->epoch() + 1) ^ mix64(hash + use));
  return Communicator(
      join_group(impl.site, std::move(chosen), me, epoch, impl.timeout, impl.links.get(), known_to(impl, here)));
}

}  // namespace gradsync
