// Streams between processes of one host: a ring in a sealed memfd that the sender makes, and a UNIX socket beside it.
//
// The ring carries the bytes, but for those that lie in registered memory (pages.hpp) and are long: these are lent, and the
// receiver reads them there; or the receiver offered a place of its own, and the sender writes them there (landing.hpp). On the
// socket, one byte either way is a doorbell, rung only for a side whose flag in the ring
// says that it sleeps; memory that is to be lent is passed along it once; its end or reset means that the other side is gone.
// Without sleepers no call enters the kernel.
#pragma once

#include "transport/lending.hpp"
#include "transport/pages.hpp"
#include "transport/stream.hpp"

namespace gradsync {

struct ShmSetup {
  std::size_t ring_bytes = 0;
  std::shared_ptr<PageRegistry> pages;  // what may be lent, and offered for landing; null: nothing
  std::shared_ptr<MappedPages> mapped;  // what the peers lend and offer; null: nothing
};

// Makes a ring and dials. out_of_memory if the ring cannot be reserved: another kind may still do.
// `dialer` and `poller` are borrowed, the poller until the stream's end.
Result<std::unique_ptr<Outgoing>> open_shm(const Dialer::Call& call, PeerName peer, const ShmSetup& setup,
                                           Dialer& dialer, Poller& poller);
// protocol if what arrived is not a sealed ring.
Result<std::unique_ptr<Incoming>> accept_shm(Arrival arrival, PeerName peer, const ShmSetup& setup, Poller& poller);

// The two ends of a ring in ordinary memory, for what a rank sends to itself.
struct OwnRing {
  std::unique_ptr<Outgoing> outgoing;
  std::unique_ptr<Incoming> incoming;
};
Result<OwnRing> open_own_ring(PeerName self, std::size_t ring_bytes);

}  // namespace gradsync
