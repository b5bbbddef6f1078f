// One direction of one (peer, channel): what the wire transports consist of.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.hpp"
#include "transport/inbox.hpp"
#include "transport/pages.hpp"
#include "transport/pieces.hpp"
#include "transport/poller.hpp"
#include "transport/transport.hpp"

namespace gradsync {

// Whom a stream talks to, for its error messages.
struct PeerName {
  std::uint32_t rank = 0;
  std::string place;  // as Dialer::describe says

  // Blames the peer, unless the want is this process's or the network's.
  Status failed(ErrorCode code, std::string_view operation, std::string_view why) const {
    const bool blameless = code == ErrorCode::out_of_memory || code == ErrorCode::unavailable;
    return peer_failure(code, blameless ? -1 : static_cast<int>(rank), "{} rank {} ({}): {}", operation, rank, place,
                        why);
  }
};

// The methods are those of Transport for one peer. A failure is for good.
class Outgoing {
 public:
  virtual ~Outgoing() = default;
  virtual Result<std::size_t> send(Pieces pieces) = 0;
  virtual bool lends(std::span<const std::byte>) { return false; }
  virtual Result<std::optional<std::size_t>> lend(std::span<const std::byte>, std::size_t) {
    return std::optional<std::size_t>();
  }
  virtual void withdraw() {}
  virtual std::optional<Transport::Landing> take_landing(std::uint64_t, std::uint64_t) { return std::nullopt; }
  // `consumed`: of the stream that comes from the peer.
  virtual Result<std::span<std::byte>> begin_land(std::uint64_t /*wanted*/, std::uint64_t /*consumed*/,
                                                  std::uint64_t /*ahead*/) {
    return std::span<std::byte>();
  }
  virtual void end_land(std::size_t) {}
  virtual std::optional<std::uint64_t> position() const { return std::nullopt; }  // bytes of the stream that have left
  // Tells the peer of the memory. False: it cannot be told.
  virtual bool show(const std::shared_ptr<const Pages>&) { return false; }
  virtual void ring() {}
  // True if something changed since the last send or arm.
  virtual bool arm() { return false; }
  virtual void disarm() {}
  // Why the stream is broken, as far as is known without a send; ok if it is not.
  virtual const Status& failure() { return failure_; }

 protected:
  Status failure_;
};

class Incoming {
 public:
  virtual ~Incoming() = default;
  virtual Result<std::span<const std::byte>> peek(std::size_t at_least) = 0;
  virtual bool consume(std::size_t count) = 0;
  virtual Result<std::size_t> receive(std::span<std::byte> into) = 0;
  // `after`: see LandingPlace.
  virtual std::optional<Transport::Landing> offer_landing(const Transport::LandingOffer&, std::uint64_t) {
    return std::nullopt;
  }
  virtual std::uint64_t position() const { return 0; }  // bytes of the stream that were consumed
  // Memory that the peer has told of, mapped here; null if it is unknown or shorter.
  virtual std::shared_ptr<std::byte> see(std::uint64_t /*memory*/, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {
    return nullptr;
  }
  virtual void allow_landing(std::uint64_t) {}
  virtual Result<std::optional<std::uint64_t>> landed() { return std::optional<std::uint64_t>(); }
  virtual void end_landing() {}
  // Of landings.
  virtual void withdraw() {}
  virtual void await(std::uint64_t /*bytes*/) {}
  virtual bool arm() { return false; }
  virtual void disarm() {}
  // Another lane of this stream; false if it does not belong to it.
  virtual bool add_lane(Arrival) { return false; }
  const Status& failure() const { return failure_; }

 protected:
  Status failure_;
};

}  // namespace gradsync
