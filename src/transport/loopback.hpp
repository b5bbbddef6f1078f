// Ranks as threads of one process: rings in ordinary memory, an eventfd a rank to wake it.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/pages.hpp"
#include "transport/transport.hpp"

namespace gradsync {

// What the ranks of one group share. Usable from all threads.
class LoopbackFabric;

// A fabric of `size` ranks whose streams hold `ring_bytes` (a multiple of 64) each. Streams cost memory once used.
std::shared_ptr<LoopbackFabric> make_loopback_fabric(std::uint32_t size, std::size_t ring_bytes);

// The transport of one rank, at most one a rank in the fabric's life. Once it is destroyed, its peers' streams from it
// report peer_lost when drained, those to it at once. The first send to a peer allocates the stream and takes a lock for
// a moment; no other call does. Throws gradsync::Error (unavailable) if there is no eventfd left.
// What `pages` knows is lent (null: nothing).
std::unique_ptr<Transport> loopback_transport(std::shared_ptr<LoopbackFabric> fabric, std::uint32_t rank,
                                              std::shared_ptr<PageRegistry> pages = nullptr);

}  // namespace gradsync
