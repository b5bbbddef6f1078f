#include "gradsync/communicator.hpp"

#include <sched.h>

#include <algorithm>
#include <array>

#include "base/random.hpp"
#include "comm/arguments.hpp"
#include "comm/measure.hpp"
#include "comm/processes.hpp"
#include "comm/site.hpp"
#include "comm/threads.hpp"
#include "comm/work.hpp"

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

}  // namespace

struct Communicator::Impl {
  std::shared_ptr<Site> site;
  std::vector<std::uint32_t> members;  // ranks of the job
  std::vector<std::uint32_t> hosts;    // host number of each member
  std::uint32_t rank = 0;
  std::chrono::nanoseconds timeout{0};
  std::uint32_t cores = 1;
  std::unique_ptr<PlanBook> plans;
  std::shared_ptr<Group> group;
  std::mutex groups_mutex;
  std::map<std::uint64_t, std::uint64_t> groups_made;  // by hash of the members: how often

  std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  Work start(const Asked& asked);
  void run(const Asked& asked) { throw_if_failed(gradsync::finish(state_of(asked))); }
  int receive(const Asked& asked);  // returns whom it came from
  Work::State state_of(const Asked& asked);
};

namespace {

std::unique_ptr<Communicator::Impl> join_group(std::shared_ptr<Site> site, std::vector<std::uint32_t> members,
                                               std::uint32_t me, std::uint64_t epoch,
                                               std::chrono::nanoseconds timeout) {
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
  impl->plans = std::make_unique<PlanBook>(me, static_cast<std::uint32_t>(members.size()), impl->hosts, site->kind());
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

Communicator::Impl& alive(const std::unique_ptr<Communicator::Impl>& impl) {
  if (!impl) throw Error(failure(ErrorCode::closed, "the communicator is empty or was moved from"));
  return *impl;
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
  Result<std::uint64_t> sequence = group->submit(std::move(request), state.completion);
  throw_if_failed(sequence.status());
  state.sequence = *sequence;
  return state;
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
  PlanBook& plans = *usable(impl_).plans;
  plans.set_network(measure_network(*this, plans.network()));
}

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
  for (std::uint32_t& r : chosen) r = impl.members[r];
  const std::uint64_t epoch =
      mix64(mix64(impl.group->epoch() ^ mix64(state.sequence)) + static_cast<std::uint64_t>(color));
  return Communicator(join_group(impl.site, std::move(chosen), me, epoch, impl.timeout));
}

Communicator Communicator::group(std::span<const int> ranks) {
  Impl& impl = usable(impl_);
  std::vector<std::uint32_t> chosen;
  std::uint64_t hash = mix64(ranks.size());
  for (int rank : ranks) {
    if (rank < 0 || rank >= size())
      throw Error(failure(ErrorCode::invalid_argument, "group: rank {} is outside of the world of {}", rank, size()));
    const std::uint32_t job_rank = impl.members[static_cast<std::size_t>(rank)];
    if (std::find(chosen.begin(), chosen.end(), job_rank) != chosen.end())
      throw Error(failure(ErrorCode::invalid_argument, "group: rank {} is listed twice", rank));
    chosen.push_back(job_rank);
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
  return Communicator(join_group(impl.site, std::move(chosen), me, epoch, impl.timeout));
}

// Collectives ------------------------------------------------------------------------------------------------------

namespace {

using Counts = std::span<const std::size_t>;

Asked all_reduce_of(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  return {.collective = Collective::all_reduce, .input = in, .output = out, .op = op, .options = o};
}
Asked reduce_scatter_of(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  return {
      .collective = Collective::reduce_scatter, .input = in, .output = out, .op = op, .counts = counts, .options = o};
}
Asked all_gather_of(ConstView in, View out, Counts counts, const CallOptions& o) {
  return {.collective = Collective::all_gather, .input = in, .output = out, .counts = counts, .options = o};
}
Asked broadcast_of(View in_out, int root, const CallOptions& o) {
  return {.collective = Collective::broadcast, .input = in_out, .output = in_out, .root = root, .options = o};
}
Asked reduce_of(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  return {.collective = Collective::reduce, .input = in, .output = out, .op = op, .root = root, .options = o};
}
Asked rooted_of(Collective collective, ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return {.collective = collective, .input = in, .output = out, .root = root, .counts = counts, .options = o};
}
Asked all_to_all_of(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  return {.collective = Collective::all_to_all,
          .input = in,
          .output = out,
          .counts = sent,
          .recv_counts = received,
          .options = o};
}
Asked pair_of(Collective collective, ConstView in, View out, int peer, const CallOptions& o) {
  return {.collective = collective, .input = in, .output = out, .root = peer, .options = o};
}

}  // namespace

void Communicator::all_reduce(View io, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(all_reduce_of(io, io, op, o));
}
void Communicator::all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(all_reduce_of(in, out, op, o));
}
Work Communicator::all_reduce_async(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  return alive(impl_).start(all_reduce_of(in, out, op, o));
}

void Communicator::reduce_scatter(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(reduce_scatter_of(in, out, {}, op, o));
}
void Communicator::reduce_scatter(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(reduce_scatter_of(in, out, counts, op, o));
}
Work Communicator::reduce_scatter_async(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  return alive(impl_).start(reduce_scatter_of(in, out, counts, op, o));
}

void Communicator::all_gather(ConstView in, View out, const CallOptions& o) {
  alive(impl_).run(all_gather_of(in, out, {}, o));
}
void Communicator::all_gather(ConstView in, View out, Counts counts, const CallOptions& o) {
  alive(impl_).run(all_gather_of(in, out, counts, o));
}
Work Communicator::all_gather_async(ConstView in, View out, Counts counts, const CallOptions& o) {
  return alive(impl_).start(all_gather_of(in, out, counts, o));
}

void Communicator::broadcast(View io, int root, const CallOptions& o) { alive(impl_).run(broadcast_of(io, root, o)); }
Work Communicator::broadcast_async(View io, int root, const CallOptions& o) {
  return alive(impl_).start(broadcast_of(io, root, o));
}

void Communicator::reduce(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  alive(impl_).run(reduce_of(in, out, op, root, o));
}
Work Communicator::reduce_async(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  return alive(impl_).start(reduce_of(in, out, op, root, o));
}

void Communicator::gather(ConstView in, View out, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::gather, in, out, {}, root, o));
}
void Communicator::gather(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::gather, in, out, counts, root, o));
}
Work Communicator::gather_async(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return alive(impl_).start(rooted_of(Collective::gather, in, out, counts, root, o));
}

void Communicator::scatter(ConstView in, View out, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::scatter, in, out, {}, root, o));
}
void Communicator::scatter(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::scatter, in, out, counts, root, o));
}
Work Communicator::scatter_async(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return alive(impl_).start(rooted_of(Collective::scatter, in, out, counts, root, o));
}

void Communicator::all_to_all(ConstView in, View out, const CallOptions& o) {
  alive(impl_).run(all_to_all_of(in, out, {}, {}, o));
}
void Communicator::all_to_all(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  alive(impl_).run(all_to_all_of(in, out, sent, received, o));
}
Work Communicator::all_to_all_async(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  return alive(impl_).start(all_to_all_of(in, out, sent, received, o));
}

void Communicator::barrier(const CallOptions& o) {
  alive(impl_).run({.collective = Collective::barrier, .options = o});
}
Work Communicator::barrier_async(const CallOptions& o) {
  return alive(impl_).start({.collective = Collective::barrier, .options = o});
}

void Communicator::send(ConstView in, int to, const CallOptions& o) {
  alive(impl_).run(pair_of(Collective::send, in, {}, to, o));
}
int Communicator::recv(View out, int from, const CallOptions& o) {
  return alive(impl_).receive(pair_of(Collective::recv, {}, out, from, o));
}
Work Communicator::send_async(ConstView in, int to, const CallOptions& o) {
  return alive(impl_).start(pair_of(Collective::send, in, {}, to, o));
}
Work Communicator::recv_async(View out, int from, const CallOptions& o) {
  return alive(impl_).start(pair_of(Collective::recv, {}, out, from, o));
}

}  // namespace gradsync
