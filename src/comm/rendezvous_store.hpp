// From a rendezvous URL to an open store, whoever serves it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "comm/address.hpp"
#include "comm/rendezvous_url.hpp"
#include "comm/store.hpp"
#include "comm/store_client.hpp"
#include "comm/store_server.hpp"

namespace gradsync {

struct OpenStore {
  std::shared_ptr<StoreServer> server;  // if this rank serves it; ends after our own connection to it
  std::unique_ptr<Store> store;
  StoreClient* watch = nullptr;  // the same store, if it tells of losses
};

// What the URL means on this host, found out before anything is opened.
struct RendezvousPlan {
  RendezvousUrl url;                    // pmi is replaced by what it led to
  std::vector<Address> addresses;       // of tcp and host0
  std::shared_ptr<StoreServer> server;  // of pmi on rank 0
  bool hosted() const {
    return url.kind == RendezvousUrl::Kind::host0 || url.kind == RendezvousUrl::Kind::unix_abstract;
  }
};
Result<RendezvousPlan> plan_rendezvous(const RendezvousUrl& url, const StoreIdentity& identity,
                                       const std::string& interface_selection, Deadline deadline);

// `entered` is called with the store's job number before any gather.
Result<OpenStore> open_store(const RendezvousPlan& plan, const StoreIdentity& identity,
                             const std::function<void(std::uint64_t)>& entered, Deadline deadline);

}  // namespace gradsync
