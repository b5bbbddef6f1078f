// How a process becomes a member of its job.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "comm/endpoint.hpp"
#include "comm/membership.hpp"
#include "gradsync/options.hpp"

namespace gradsync {

struct Joined {
  std::shared_ptr<Endpoint> endpoint;
  Membership membership;
};

// Joins the job that the options name: chooses this rank's address, starts its endpoint, meets the other ranks at the
// rendezvous, and finds out by probing which of them share the host. Blocks until all ranks are there, at most
// options.start_timeout (default limits::rendezvous_timeout_default); O(1) writes to the store.
// Errors: invalid_argument (rank, size, rendezvous, interface; two workers of one rank; ranks that disagree on the size),
// timeout (names who is missing), protocol (a foreign service at the rendezvous, another version of the library),
// unavailable, peer_lost.
Result<Joined> join(const Options& options);

}  // namespace gradsync
