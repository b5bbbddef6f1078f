#include "comm/rendezvous.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "base/limits.hpp"
#include "base/wire.hpp"
#include "comm/interfaces.hpp"
#include "comm/probe.hpp"
#include "comm/rendezvous_store.hpp"
#include "comm/sockets.hpp"
#include "comm/store_key_value.hpp"

namespace gradsync {
namespace {

using Kind = RendezvousUrl::Kind;

// A join under way: what is known so far.
struct Joining {
  Options options;
  StoreIdentity identity;
  Deadline deadline = Deadline::after(Nanoseconds(0));
  RendezvousPlan plan;
  std::shared_ptr<Endpoint> endpoint;
  Membership membership;
};

Result<Joining> check(const Options& options) {
  const auto bad = [](std::string text) { return Status{ErrorCode::invalid_argument, -1, std::move(text)}; };
  if (options.store && (options.rank < 0 || options.size < 0))
    return bad(
        fmt::format("a store to meet in needs rank and size: rank is {}, size is {}", options.rank, options.size));
  if (options.store && !options.rendezvous.empty())
    return bad(fmt::format("both a store and the rendezvous {} say where to meet", options.rendezvous));
  if (options.size < 0 && options.rank < 0)
    return bad(
        "no rank and no world size: set GRADSYNC_RANK, GRADSYNC_SIZE and GRADSYNC_RENDEZVOUS, or start with gradsync "
        "run, torchrun, mpirun or srun");
  if (options.size == -1) return bad(fmt::format("rank is {}, but no world size is set (GRADSYNC_SIZE)", options.rank));
  if (options.rank == -1 && options.size > 0)
    return bad(fmt::format("world size is {}, but no rank is set (GRADSYNC_RANK)", options.size));
  if (options.size <= 0 || options.size > limits::ranks_max)
    return bad(fmt::format("world size is {}, expected 1 to {}", options.size, limits::ranks_max));
  if (options.rank < 0 || options.rank >= options.size)
    return bad(fmt::format("rank {} is outside of the world of {} ranks (0 to {})", options.rank, options.size,
                           options.size - 1));
  if (options.host.size() > kLabelBytesMax)
    return bad(fmt::format("host label has {} bytes, at most {} are possible", options.host.size(), kLabelBytesMax));
  if (options.agreement.size() > kAgreementBytesMax)
    return bad(fmt::format("what the ranks come for has {} bytes, at most {} are possible", options.agreement.size(),
                           kAgreementBytesMax));
  Joining joining;
  joining.options = options;
  joining.identity = {"default", static_cast<std::uint32_t>(options.rank), static_cast<std::uint32_t>(options.size),
                      process_identity(), options.agreement};
  const Nanoseconds timeout =
      options.start_timeout.count() > 0 ? options.start_timeout : limits::rendezvous_timeout_default;
  joining.deadline = Deadline::after(timeout);
  joining.options.start_timeout = timeout;
  return joining;
}

// What the endpoint listens on, so that all who reach the rendezvous reach it too.
Result<Address> own_address(const Joining& joining) {
  AddressWish wish;
  wish.selection = joining.options.interface;
  const RendezvousUrl& url = joining.plan.url;
  wish.one_host = url.kind == Kind::unix_abstract || joining.options.size == 1;
  Status unreached;
  for (const Address& target : joining.plan.addresses) {
    auto source = source_for(target);
    if (!source) {
      unreached = source.status();
      continue;
    }
    // A host's own name may resolve to 127.0.1.1, which says nothing about how the others reach it.
    const bool own_name = source->loopback() && !parse_address(url.host) && url.host != "localhost";
    if (!own_name) wish.source = *source;
    wish.one_host = source->loopback() && !own_name;
    unreached = {};
    break;
  }
  const auto interfaces = list_interfaces();
  if (!unreached && wish.selection.empty()) {
    std::string tried;
    for (const auto& entry : interfaces)
      tried += fmt::format("{}{} {}{}", tried.empty() ? "" : ", ", entry.name, host_text(entry.address),
                           entry.up ? "" : " (down)");
    return failure(ErrorCode::unavailable, "{}; interfaces: {}", unreached.message, tried.empty() ? "none" : tried);
  }
  return choose_address(interfaces, wish);
}

Place own_place(const Joining& joining) {
  Place place;
  place.tcp = joining.endpoint->address();
  place.unix_name = joining.endpoint->unix_name();
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  place.label = joining.options.host.empty() ? std::string(name.data()) : joining.options.host;
  place.boot = boot_identity();
  place.network = network_identity();
  place.declared = joining.options.host;
  return place;
}

Status take_places(Joining& joining, const std::vector<std::string>& blobs) {
  std::vector<Place> places;
  for (const std::string& blob : blobs) {
    auto place = decode_place(blob);
    if (!place) return place.status();
    // The number of an interface means nothing on another host: a link-local peer is behind our own interface.
    if (place->tcp.ipv6 && place->tcp.link_local()) place->tcp.scope = joining.endpoint->address().scope;
    places.push_back(std::move(*place));
  }
  const auto loopback = std::find_if(places.begin(), places.end(), [](const Place& p) { return p.tcp.loopback(); });
  for (const Place& place : places) {
    if (loopback == places.end() || (place.boot == loopback->boot && place.network == loopback->network)) continue;
    return failure(ErrorCode::unavailable,
                   "rank {} listens on {}, which rank {} on another host (or network namespace) cannot reach; name a "
                   "network with GRADSYNC_INTERFACE",
                   loopback - places.begin(), host_text(loopback->tcp), &place - places.data());
  }
  joining.membership.places = std::move(places);
  return {};
}

// The lowest rank that is known to share our host, ourselves if none. Hints choose whom to ask, the probe decides.
std::uint32_t host_leader(const Joining& joining) {
  const auto& places = joining.membership.places;
  const std::uint32_t me = joining.identity.rank;
  const Place& mine = places[me];
  if (mine.boot == 0 || mine.network == 0) return me;
  const auto candidate = std::find_if(places.begin(), places.end(), [&](const Place& place) {
    return place.boot == mine.boot && place.network == mine.network && place.declared == mine.declared;
  });
  const auto leader = static_cast<std::uint32_t>(candidate - places.begin());
  if (leader == me) return me;
  const Deadline deadline = earlier(joining.deadline, Deadline::after(limits::handshake_timeout));
  return probe_host({candidate->unix_name, joining.membership.job, me, leader}, deadline) ? leader : me;
}

Status take_hosts(Joining& joining, const std::vector<std::string>& blobs) {
  std::vector<std::uint32_t> leaders;
  for (const std::string& blob : blobs) {
    WireReader wire(as_bytes(blob));
    leaders.push_back(wire.u32());
    if (!wire.ok() || leaders.back() >= joining.identity.size)
      return failure(ErrorCode::protocol, "rank {} named rank {} as its host's first", leaders.size() - 1,
                     leaders.back());
  }
  joining.membership.hosts = numbered_by_first_appearance(leaders);
  return {};
}

Status meet(Joining& joining, Store& store) {
  const auto places = store.gather("places", encode(own_place(joining)), joining.deadline);
  if (!places) return places.status();
  joining.membership.job = store.job();
  if (Status status = take_places(joining, *places); !status) return status;
  std::string leader(4, '\0');
  WireWriter(as_writable_bytes(leader)).u32(host_leader(joining));
  const auto leaders = store.gather("hosts", leader, joining.deadline);
  if (!leaders) return leaders.status();
  if (Status status = take_hosts(joining, *leaders); !status) return status;
  return store.settle(joining.deadline);
}

Result<OpenStore> enter_store(Joining& joining) {
  const auto entered = [&](std::uint64_t job) { joining.endpoint->set_job(job); };
  if (!joining.options.store) return open_store(joining.plan, joining.identity, entered, joining.deadline);
  auto meeting = KeyValueMeeting::open(joining.options.store, joining.identity, GRADSYNC_VERSION, joining.deadline);
  if (!meeting) return meeting.status();
  entered((*meeting)->job());
  return OpenStore{nullptr, std::move(*meeting), nullptr};
}

Status meet_at_store(Joining& joining) {
  for (;;) {
    auto opened = enter_store(joining);
    if (!opened) return opened.status();
    Status status = meet(joining, *opened->store);
    if (status) {
      if (opened->server) joining.endpoint->keep(std::move(opened->server));
      if (opened->watch) {
        opened->store.release();
        joining.endpoint->watch(std::unique_ptr<LossWatch>(opened->watch));
      }
      return {};
    }
    // A store that rank 0 served for an earlier group of the same job may close while we enter it.
    const bool again =
        joining.plan.hosted() && status.code == ErrorCode::unavailable && joining.membership.places.empty();
    if (!again || joining.deadline.passed()) return opened->store->fail(status.message), status;
  }
}

Status in_context(const Joining& joining, Status status) {
  const std::string where = joining.options.store                ? "rendezvous in the program's store"
                            : joining.options.rendezvous.empty() ? "joining"
                                                                 : "rendezvous " + joining.options.rendezvous;
  if (status.code == ErrorCode::timeout)
    status.message = fmt::format("{}: timeout after {:g} s: {}", where,
                                 std::chrono::duration<double>(joining.options.start_timeout).count(), status.message);
  else if (!status.message.starts_with("rendezvous")) status.message = fmt::format("{}: {}", where, status.message);
  return status;
}

Status alone(Joining& joining) {
  joining.membership.job = random_number();
  joining.endpoint->set_job(joining.membership.job);
  joining.membership.places = {own_place(joining)};
  joining.membership.hosts = {0};
  return {};
}

}  // namespace

Result<Joined> join(const Options& options) {
  auto joining = check(options);
  if (!joining) return joining.status();
  const bool without_store = options.size == 1 && options.rendezvous.empty() && options.agreement.empty();
  if (!without_store && !options.store) {
    if (options.rendezvous.empty())
      return failure(ErrorCode::invalid_argument, "no rendezvous: {} ranks need GRADSYNC_RENDEZVOUS to find each other",
                     options.size);
    auto url = parse_rendezvous(options.rendezvous);
    if (!url) return url.status();
    auto plan = plan_rendezvous(*url, joining->identity, options.interface, joining->deadline);
    if (!plan) return in_context(*joining, plan.status());
    joining->plan = std::move(*plan);
  }
  const auto address = own_address(*joining);
  if (!address) return in_context(*joining, address.status());
  auto endpoint = Endpoint::start(*address);
  if (!endpoint) return in_context(*joining, endpoint.status());
  joining->endpoint = *endpoint;
  joining->membership.rank = joining->identity.rank;
  joining->membership.size = joining->identity.size;
  if (Status status = without_store ? alone(*joining) : meet_at_store(*joining); !status)
    return in_context(*joining, std::move(status));
  return Joined{std::move(*endpoint), std::move(joining->membership)};
}

}  // namespace gradsync
