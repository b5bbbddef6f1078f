#include "comm/rendezvous_store.hpp"

#include <algorithm>
#include <thread>

#include "comm/interfaces.hpp"
#include "comm/pmi.hpp"
#include "comm/sockets.hpp"
#include "comm/store_file.hpp"

namespace gradsync {
namespace {

using Kind = RendezvousUrl::Kind;
using Answer = StoreClient::Answer;

constexpr auto kPatienceOfMany = std::chrono::seconds(1);  // with one of several places where the store may be
constexpr auto kClosedFor = std::chrono::seconds(3);       // a server that only ever hangs up is not a store
constexpr auto kRetryLongest = std::chrono::milliseconds(100);
constexpr const char* kPmiKey = "gradsync-store";

bool is_local(const Address& address) {
  const auto source = source_for(address);
  return source && source->same_host(address);
}

// One round over the places where the store may be; true once the outcome is final.
class Search {
 public:
  Search(std::vector<StoreTarget> targets, const StoreIdentity& identity)
      : targets_(std::move(targets)),
        identity_(identity) {}

  bool round(Deadline deadline) {
    for (const StoreTarget& target : targets_) {
      const Deadline patience = targets_.size() > 1 ? earlier(deadline, Deadline::after(kPatienceOfMany)) : deadline;
      StoreClient::Attempt attempt = StoreClient::connect(target, identity_, patience, deadline);
      if (attempt.answer == Answer::welcome) return client_ = std::move(attempt.client), true;
      status_ = std::move(attempt.status);
      if (attempt.answer == Answer::refused) return true;
      if (targets_.size() > 1) continue;
      if (attempt.answer == Answer::foreign || attempt.answer == Answer::other_job) return true;
      if (attempt.answer != Answer::closed) closed_since_.reset();
      else if (!closed_since_) closed_since_ = Deadline::after(kClosedFor);
      else if (closed_since_->passed()) {
        status_ = failure(ErrorCode::protocol, "not a gradsync store ({})", status_.message);
        return true;
      }
    }
    return false;
  }
  std::unique_ptr<StoreClient> client() { return std::move(client_); }
  const Status& status() const { return status_; }

 private:
  std::vector<StoreTarget> targets_;
  const StoreIdentity& identity_;
  std::unique_ptr<StoreClient> client_;
  Status status_;
  std::optional<Deadline> closed_since_;
};

Result<OpenStore> find_store(std::vector<StoreTarget> targets, const StoreIdentity& identity, Deadline deadline) {
  Search search(std::move(targets), identity);
  Nanoseconds pause = std::chrono::milliseconds(2);
  while (!search.round(deadline)) {
    if (deadline.passed()) return failure(ErrorCode::timeout, "{}", search.status().message);
    std::this_thread::sleep_until(std::min(deadline.when(), std::chrono::steady_clock::now() + pause));
    pause = std::min<Nanoseconds>(pause * 2, kRetryLongest);
  }
  OpenStore opened;
  auto client = search.client();
  if (!client) return search.status();
  opened.watch = client.get();
  opened.store = std::move(client);
  return opened;
}

// Rank 0: serves the store at the first of the places that is free, or enters its own that serves an earlier group.
Result<OpenStore> host_store(const RendezvousPlan& plan, const StoreIdentity& identity, Deadline deadline) {
  const std::uint16_t places = plan.url.kind == Kind::host0 ? kHostedPorts : 1;
  Status last;
  for (std::uint16_t i = 0; i < places; ++i) {
    StoreTarget target;
    std::optional<Result<std::unique_ptr<StoreServer>>> server;
    if (plan.url.kind == Kind::host0) {
      const std::uint32_t port = std::uint32_t{plan.url.port} + i;
      if (port > 65535) break;
      Address at = plan.addresses.front().with_port(static_cast<std::uint16_t>(port));
      target.tcp = at;
      // A name may resolve to anything here (127.0.1.1); listening everywhere, the others reach it as they resolve it.
      const bool exact = parse_address(plan.url.host).has_value() && is_local(at);
      if (!exact) at.bytes = {}, at.scope = 0;
      server = StoreServer::start(at, identity.job);
      if (!exact) target.tcp = parse_address(at.ipv6 ? "::1" : "127.0.0.1")->with_port(at.port);
    } else {
      target.unix_name = plan.url.name;
      server = StoreServer::start_abstract(plan.url.name, identity.job);
    }
    if (*server) {
      auto opened = find_store({target}, identity, deadline);
      if (opened) opened->server = std::move(**server);
      return opened;
    }
    last = server->status();
    auto attempt =
        StoreClient::connect(target, identity, earlier(deadline, Deadline::after(kPatienceOfMany)), deadline);
    if (attempt.answer == Answer::refused) return attempt.status;
    if (attempt.answer != Answer::welcome) continue;
    OpenStore opened;
    opened.watch = attempt.client.get();
    opened.store = std::move(attempt.client);
    return opened;
  }
  return failure(ErrorCode::unavailable, "rank 0 cannot serve the store: {}", last.message);
}

std::vector<StoreTarget> targets_of(const RendezvousPlan& plan) {
  if (plan.url.kind == Kind::unix_abstract) return {StoreTarget{std::nullopt, plan.url.name}};
  std::vector<StoreTarget> targets;
  const std::uint16_t ports = plan.url.kind == Kind::host0 ? kHostedPorts : 1;
  for (std::uint16_t i = 0; i < ports && std::uint32_t{plan.url.port} + i <= 65535; ++i)
    for (const Address& address : plan.addresses)
      targets.push_back({address.with_port(static_cast<std::uint16_t>(plan.url.port + i)), {}});
  return targets;
}

Result<PmiClient> open_pmi(const RendezvousUrl& url, Deadline deadline) {
  auto pmi = url.host == "fd" ? Result<PmiClient>(PmiClient::borrow(url.port))
                              : PmiClient::connect(url.host, url.port, url.job, deadline);
  if (!pmi) return pmi;
  if (Status status = pmi->start(deadline); !status) return status;
  return pmi;
}

// Rank 0 serves a store and tells where; the launcher passes it on. The exchange ends our use of PMI, for a process that
// ends while its launcher believes it in use counts as crashed: so such a job joins once.
Result<RendezvousPlan> plan_pmi(const RendezvousUrl& url, const StoreIdentity& identity, const std::string& selection,
                                Deadline deadline) {
  RendezvousPlan plan;
  auto pmi = open_pmi(url, deadline);
  if (!pmi) return pmi.status();
  if (identity.rank == 0) {
    const std::string job = fmt::format("{:016x}", random_number());
    const auto address = choose_address(list_interfaces(), {selection, default_source(), false});
    if (!address) return address.status();
    auto server = StoreServer::start(*address, job);
    if (!server) return server.status();
    plan.server = std::move(*server);
    const std::string place = fmt::format("tcp://{}/{}", text(plan.server->address()), job);
    if (Status status = pmi->put(kPmiKey, place, deadline); !status) return status;
  }
  if (Status status = pmi->barrier(deadline); !status) return status;
  const auto place = pmi->get(kPmiKey, deadline);
  if (!place) return place.status();
  if (place->empty()) return failure(ErrorCode::protocol, "PMI: rank 0 has not told where its store is");
  if (Status status = pmi->finish(deadline); !status) return status;
  auto found = parse_rendezvous(*place);
  if (!found) return found.status();
  plan.url = std::move(*found);
  return plan;
}

}  // namespace

Result<RendezvousPlan> plan_rendezvous(const RendezvousUrl& url, const StoreIdentity& identity,
                                       const std::string& interface_selection, Deadline deadline) {
  RendezvousPlan plan;
  plan.url = url;
  if (url.kind == Kind::pmi) {
    auto found = plan_pmi(url, identity, interface_selection, deadline);
    if (!found) return found;
    plan = std::move(*found);
  }
  if (plan.url.kind != Kind::tcp && plan.url.kind != Kind::host0) return plan;
  auto addresses = resolve(plan.url.host, plan.url.port, deadline);
  if (!addresses) return addresses.status();
  plan.addresses = std::move(*addresses);
  return plan;
}

Result<OpenStore> open_store(const RendezvousPlan& plan, const StoreIdentity& given,
                             const std::function<void(std::uint64_t)>& entered, Deadline deadline) {
  StoreIdentity identity = given;
  if (!plan.url.job.empty()) identity.job = plan.url.job;
  if (plan.url.kind == Kind::file) {
    auto file = FileStore::open(plan.url.name, identity, entered, deadline);
    if (!file) return file.status();
    return OpenStore{nullptr, std::move(*file), nullptr};
  }
  const bool serves = identity.rank == 0 && plan.hosted() && !plan.server;
  auto opened = serves ? host_store(plan, identity, deadline) : find_store(targets_of(plan), identity, deadline);
  if (!opened) return opened;
  if (plan.server) opened->server = plan.server;
  entered(opened->store->job());
  return opened;
}

}  // namespace gradsync
