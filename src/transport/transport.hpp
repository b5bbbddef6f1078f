// How bytes move between ranks: one reliable, ordered stream of bytes for each (sender, receiver, channel).
//
// A transport belongs to one communicator and is used by one thread at a time. Nothing here blocks: calls move what can
// be moved now. Streams are opened when first used. A stream that broke reports peer_lost for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "gradsync/types.hpp"

namespace gradsync {

// Streams of different channels do not wait for each other.
enum class Channel : std::uint8_t { collective, point_to_point };
inline constexpr std::size_t kChannelCount = 2;

// The other end of a stream, a rank of the communicator that owns the transport.
struct Peer {
  std::uint32_t rank = 0;
  Channel channel = Channel::collective;
  friend bool operator==(const Peer&, const Peer&) = default;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual TransportKind kind() const = 0;

  // Takes bytes of the pieces, in order, as many as fit now (0: none) and returns their number. Taken bytes are copied:
  // the caller may change them at once. Bytes that were not taken must be the first of the next send to this peer,
  // unchanged: some of them may be on their way already (tcp with several lanes).
  virtual Result<std::size_t> send(Peer to, std::span<const std::span<const std::byte>> pieces) = 0;

  // The bytes that have arrived and are not consumed, as far as they lie contiguously. If fewer than `at_least` are shown
  // (at_least <= 64), no more have arrived. The span is valid until the next call for this peer. Once the stream broke,
  // what had arrived is still shown while it is `at_least` (or 1) bytes; then peer_lost.
  virtual Result<std::span<const std::byte>> peek(Peer from, std::size_t at_least) = 0;
  // Drops the first `count` bytes of what peek shows. False if they were lent and have been taken back meanwhile: they may
  // have changed under the reader's eyes, and the next peek fails.
  virtual bool consume(Peer from, std::size_t count) = 0;
  // Moves arrived bytes into `into`, as many as are there; may skip the copy through the receive buffer.
  virtual Result<std::size_t> receive(Peer from, std::span<std::byte> into);

  // Lending: the peer reads the bytes where they lie in this process's memory, as part of the stream, without a copy.
  // Whether `lend` of these bytes would be taken: they are in registered memory and the peer can map it.
  virtual bool lends(Peer, std::span<const std::byte>) { return false; }
  // Offers `bytes` as the next bytes of the stream, the first `ready` of them now (0 < ready <= bytes.size()). Returns how
  // many the peer has read: only those may be changed. To be called again, with the same bytes and a `ready` that does not
  // shrink, until all are read; until then nothing else is sent to this peer. Nothing is returned if the peer cannot read
  // them there after all, and none of them is part of the stream then: send them.
  virtual Result<std::optional<std::size_t>> lend(Peer, std::span<const std::byte>, std::size_t) {
    return std::optional<std::size_t>();
  }
  // Takes back what is lent and not read: its memory may be changed from now on. The streams concerned are of no use then.
  virtual void withdraw() {}

  // Appends the ranks that have opened a stream of this channel to us, whether or not we ever read from it.
  virtual void append_senders(Channel channel, std::vector<std::uint32_t>& out) const = 0;

  // Sleeping. `descriptor` is one that poll() and epoll can watch: readable when something may have changed since
  // `arm`. Protocol: if (arm()) poll(descriptor); disarm(). `arm` returns false if something changed already: do not
  // sleep.
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;
  virtual void disarm() = 0;

  // What a person calls the peer's place: "host name or address (shm)". For error messages.
  virtual std::string describe(std::uint32_t rank) const = 0;
};

}  // namespace gradsync
