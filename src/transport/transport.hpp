// How bytes move between ranks: one reliable, ordered stream of bytes for each (sender, receiver, channel).
//
// A transport belongs to one communicator and is used by one thread at a time. Nothing here blocks: calls move what can
// be moved now. Streams are opened when first used. A stream that broke reports peer_lost for good.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Takes back what is lent and not read, and what is offered for landing: its memory may be changed from now on. The streams
  // concerned are of no use then. Waits at most limits::landing_withdraw_timeout for a write that is under way.
  virtual void withdraw() {}

  // Landing: the sender writes the middle of a message's payload where the receiver wants it, in the receiver's registered
  // memory. The receiver offers a place before the message's header has come, and allows ever more of it to be written.
  struct LandingOffer {
    std::uint64_t ahead = 0;        // bytes of the stream that come before the header
    std::uint64_t fingerprint = 0;  // of the header
    std::span<std::byte> payload;   // where the whole payload is to go
    // The payload of a message to this very peer that has not begun either lies there now: bytes of our stream to the peer that
    // come before that payload.
    std::optional<std::uint64_t> same_memory_ahead = {};
  };
  // The part of a payload that lands; the rest is part of the stream.
  struct Landing {
    std::uint64_t skip = 0, bytes = 0;
  };
  // One offer at a time for each stream. Nothing if that is not possible here.
  virtual std::optional<Landing> offer_landing(Peer, const LandingOffer&) { return std::nullopt; }
  // The first `bytes` of the landing may be written from now on; it never shrinks.
  virtual void allow_landing(Peer, std::uint64_t) {}
  // Once the header has come: bytes that have landed so far. Nothing if the whole payload is part of the stream; the offer
  // has ended then.
  virtual Result<std::optional<std::uint64_t>> landed(Peer) { return std::optional<std::uint64_t>(); }
  // All of it has landed.
  virtual void end_landing(Peer) {}
  // The sender's side: how many bytes of the stream have left; nothing if that cannot be told now.
  virtual std::optional<std::uint64_t> sent_position(Peer) { return std::nullopt; }
  // Before it sends the header, which will be at that position: takes the offer for this message, if there is one.
  virtual std::optional<Landing> take_landing(Peer, std::uint64_t /*position*/, std::uint64_t /*fingerprint*/) {
    return std::nullopt;
  }
  // Where the next bytes of the landing are to be written: at most `wanted`, fewer or none as is allowed. They are not part of the
  // stream: the message's turn there need not have come. `ahead`: so many bytes of the peer's stream to us are read in
  // step with this write, each before its like is written, and consumed after it. Unless it is empty or a failure,
  // `end_land` follows at once and says how many were written.
  virtual Result<std::span<std::byte>> begin_land(Peer, std::uint64_t /*wanted*/, std::uint64_t /*ahead*/) {
    return std::span<std::byte>();
  }
  virtual void end_land(Peer, std::size_t /*count*/) {}
  // Copies the next bytes of the landing there, as many as are allowed, and returns their number.
  Result<std::size_t> land(Peer to, std::span<const std::byte> bytes);

  // The board (board.hpp): memory of each rank that all of them see, where they share one host. Whether there may be any, which all
  // ranks know alike.
  virtual bool may_have_boards() const { return false; }
  // This rank's own, laid out, made when first asked for; null if it cannot be made.
  virtual std::byte* own_board() { return nullptr; }
  // Lets the peer see it, before the next bytes of the collectives' stream to it. False: it cannot.
  virtual bool show_board(std::uint32_t /*to*/) { return false; }
  // The peer's, kBoardBytes, once bytes have come that it sent after showing it; null if it cannot be seen here.
  virtual std::shared_ptr<std::byte> board_of(std::uint32_t /*from*/) { return nullptr; }
  // The same with registered memory that both may write until the operation ends: where `bytes` lie, to be told to the peer;
  // nothing if they cannot be shown.
  struct Shown {
    std::uint64_t memory = 0, offset = 0;
  };
  virtual std::optional<Shown> show(std::uint32_t /*to*/, std::span<const std::byte> /*bytes*/) { return std::nullopt; }
  virtual std::byte* shown(std::uint32_t /*from*/, const Shown& /*where*/, std::uint64_t /*bytes*/) { return nullptr; }
  // Puts other pages under registered memory of ours that was among the last two shown, content kept: out of the reach of a peer that
  // writes there and does not answer.
  virtual void take_away(std::span<std::byte> /*bytes*/) {}
  // Wakes the peer if it sleeps.
  virtual void ring(std::uint32_t /*to*/) {}

  // Appends the ranks that have opened a stream of this channel to us, whether or not we ever read from it.
  virtual void append_senders(Channel channel, std::vector<std::uint32_t>& out) const = 0;

  // Whether the rank is reached over a network, where bytes come at the network's pace.
  virtual bool remote(std::uint32_t /*rank*/) const { return false; }
  // For the next sleep: the stream's next `bytes` are of use together, fewer need not end it. Its end or failure does.
  virtual void await(Peer /*from*/, std::uint64_t /*bytes*/) {}

  // Sleeping. `descriptor` is one that poll() and epoll can watch: readable when something may have changed since
  // `arm`. Protocol: if (arm()) poll(descriptor); disarm(). `arm` returns false if something changed already: do not
  // sleep.
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;
  virtual void disarm() = 0;

  // What a person calls the peer's place: "host name or address (shm)". For error messages.
  virtual std::string describe(std::uint32_t rank) const = 0;
  // The same with the rank: "rank 3, host name or address (shm)".
  std::string name(std::uint32_t rank) const;
};

}  // namespace gradsync
