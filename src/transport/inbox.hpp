// What other processes hand to a transport: opened streams. The acceptor (comm/) fills it, the transport empties it.
#pragma once

#include <cstdint>
#include <string>

#include "base/descriptor.hpp"
#include "transport/transport.hpp"

namespace gradsync {

// A stream that a peer opened to us, after the handshake.
struct Arrival {
  TransportKind kind = TransportKind::tcp;  // shm or tcp
  std::uint32_t from = 0;                   // the peer's rank in the communicator
  Channel channel = Channel::collective;
  std::uint32_t lane = 0, lanes = 1;  // tcp
  Descriptor socket;                  // connected, non-blocking; nothing of the stream has been read from it
  Descriptor memory;                  // shm: the sender's ring
};

class Inbox {
 public:
  virtual ~Inbox() = default;
  // Takes the next arrival; false if there is none.
  virtual bool take(Arrival& out) = 0;
  // Readable while an arrival waits.
  virtual int descriptor() const = 0;
};

// How a transport opens a stream to a peer: connects and sends the handshake that the peer's acceptor understands.
// The returned socket is non-blocking and may still be connecting (tcp); `memory` is passed along (shm), borrowed.
class Dialer {
 public:
  virtual ~Dialer() = default;
  struct Call {
    TransportKind kind = TransportKind::tcp;
    std::uint32_t to = 0;
    Channel channel = Channel::collective;
    std::uint32_t lane = 0, lanes = 1;
    int memory = -1;
  };
  // For tcp the handshake bytes are returned in `greeting`, to be written before anything else once connected.
  struct Line {
    Descriptor socket;
    std::string greeting;
  };
  virtual Result<Line> dial(const Call& call) = 0;
  virtual std::string describe(std::uint32_t rank) const = 0;
};

}  // namespace gradsync
