// Streams between processes of one host: a ring in a sealed memfd that the sender makes, and a UNIX socket beside it.
//
// The ring carries the bytes. On the socket, one byte either way is a doorbell, rung only for a side whose flag in the ring
// says that it sleeps; its end or reset means that the other side is gone. Without sleepers no call enters the kernel.
#pragma once

#include "transport/stream.hpp"

namespace gradsync {

// Makes a ring of `ring_bytes` and dials. out_of_memory if the ring cannot be reserved: another kind may still do.
// `dialer` and `poller` are borrowed, the poller until the stream's end.
Result<std::unique_ptr<Outgoing>> open_shm(const Dialer::Call& call, PeerName peer, std::size_t ring_bytes,
                                           Dialer& dialer, Poller& poller);
// protocol if what arrived is not a sealed ring.
Result<std::unique_ptr<Incoming>> accept_shm(Arrival arrival, PeerName peer, Poller& poller);

// The two ends of a ring in ordinary memory, for what a rank sends to itself.
struct OwnRing {
  std::unique_ptr<Outgoing> outgoing;
  std::unique_ptr<Incoming> incoming;
};
Result<OwnRing> open_own_ring(PeerName self, std::size_t ring_bytes);

}  // namespace gradsync
