// The transport of real processes: shared memory inside a host, TCP between hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/limits.hpp"
#include "transport/inbox.hpp"
#include "transport/pages.hpp"
#include "transport/transport.hpp"

namespace gradsync {

struct TransportConfig {
  std::uint32_t rank = 0, size = 1;
  std::vector<std::uint32_t> hosts;                     // number of each rank's host
  TransportKind kind = TransportKind::automatic;        // shm: no rank may be elsewhere; tcp: inside a host too
  std::uint32_t lanes = 1;                              // connections of a TCP stream, at most limits::lanes_max
  std::size_t ring_bytes = limits::ring_bytes_default;  // of one shm stream, a multiple of 64
  std::shared_ptr<PageRegistry> pages = nullptr;        // what may be lent inside the host; null: nothing
};

// Opens streams with `dialer` when first sent on, and takes what peers opened from `inbox`; what does not fit (rank, kind,
// lane, a second stream) is dropped. Where shared memory cannot be reserved, the pair uses TCP instead and one warning
// line says so. A stream whose opening failed stays failed. invalid_argument if the configuration cannot be right,
// unavailable if there is no epoll.
Result<std::unique_ptr<Transport>> open_transport(const TransportConfig& config, std::shared_ptr<Dialer> dialer,
                                                  std::shared_ptr<Inbox> inbox);

}  // namespace gradsync
