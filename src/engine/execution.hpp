// One operation on its way: a cursor over a schedule, bound to memory, moved byte by byte over streams.
//
// Live steps advance together. A step may follow an earlier one that touches the same memory at a distance: its byte at
// address x moves once every earlier conflicting step has passed x. So a chunk is forwarded while it is still being
// reduced, and two ranks that exchange whole buffers in place (recursive doubling) need no second buffer.
// Where nothing moves that way, arrived messages are drained into staging, one for each peer, which is the window that the
// proofs grant (verify/).
// A long message from registered memory is not copied but lent: the send step is done with a byte once the receiver has
// read it where it lies. Its window is zero, and staging grants the rest.
// Where a long message is to be assigned to registered memory, the receiver offers that memory, and the sender writes there
// itself, best while what it writes is still in its cache. See transport/landing.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/binding.hpp"
#include "engine/call.hpp"
#include "engine/movement.hpp"
#include "gradsync/counters.hpp"
#include "schedule/cursor.hpp"
#include "transport/transport.hpp"

namespace gradsync {

class Execution final : public Movement {
 public:
  using Setup = gradsync::Setup;
  explicit Execution(Setup setup);

  Result<bool> advance(Transport& transport, Counters& counters) override;
  // Of a receive that has not begun: its message's header was seen and is taken from the stream, alone or with the first
  // `arrived` bytes of the payload, which lie in memory for all of it.
  Status adopt(const FrameHeader& header, std::unique_ptr<std::byte[]> data, std::uint64_t arrived);
  // For a pass in which nothing moved: drains messages whose steps cannot take them yet, so that their senders get on. Those
  // that are beyond the lookahead at once; those whose step waits for another after a standstill of
  // limits::held_back_patience, as that is most often only a late peer.
  Result<bool> stage(Transport& transport, Counters& counters, TimePoint now) override;
  // When `stage` will have something to do if nothing moves until then; nothing if it will not.
  std::optional<TimePoint> stages_at() const override;
  Status check_senders(Transport& transport) override;

  bool waits_for_bulk(const Transport& transport) const override;
  void await(Transport& transport) const override;

  bool finished() const override { return cursor_.finished(); }
  int waits_for() const override;  // of the oldest live step
  std::string waits_in_words() const override;

  const Setup& setup() const override { return setup_; }

 private:
  enum class Way : std::uint8_t { undecided, copied, lent, landed };
  struct Progress {
    Region target, source;    // source: local steps only
    std::uint64_t bytes = 0;  // of the target
    std::uint64_t done = 0;
    std::uint64_t header_done = 0;                 // bytes of the frame header sent or consumed
    bool staged = false;                           // the payload comes from staging_
    bool divides = false;                          // what is written is the end of an average
    Way way = Way::undecided;                      // of a send
    std::optional<Transport::Landing> landing;     // of a send: accepted; of a receive: offered, until it has ended
    std::uint64_t landed = 0;                      // bytes of it, of a send
    std::optional<std::uint64_t> header_position;  // on the stream, of a send that may land
    std::uint64_t offered = 0;                     // of a loan: position up to which the peer may read
  };
  // Bytes of a send that are written into the peer's memory while they are made.
  struct Echo {
    Cursor::Slot send = 0;
    std::byte* place = nullptr;  // null: nowhere
    std::uint64_t bytes = 0;     // with a place or without: make so many first; 0: as you like
  };
  struct Staged {
    std::uint32_t peer = 0;
    std::unique_ptr<std::byte[]> data;
    std::uint64_t bytes = 0, arrived = 0;
  };

  void begin(Cursor::Slot slot);
  void begin_if_new(Cursor::Slot slot, Transport& transport);
  void offer_landing(Cursor::Slot slot, Transport& transport);
  std::optional<std::uint64_t> stream_ahead_of(Cursor::Slot slot) const;
  bool may_land(Cursor::Slot slot) const;
  bool lands_from(std::uint32_t peer) const;
  bool same_memory(Cursor::Slot a, Cursor::Slot b) const;
  std::uint64_t fingerprint(std::uint64_t payload_bytes) const;
  Result<bool> advance_step(Cursor::Slot slot, Transport& transport, Counters& counters);
  Result<bool> advance_send(Cursor::Slot slot, std::uint64_t limit, Transport& transport, Counters& counters);
  Result<bool> copy_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport);
  Result<bool> lend_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport);
  void note_position(Cursor::Slot slot, Transport& transport);
  bool accept_landing(Cursor::Slot slot, Transport& transport);
  Result<bool> land_early(Cursor::Slot slot, Transport& transport);
  Result<bool> land(Cursor::Slot slot, std::uint64_t limit, Transport& transport);
  Result<bool> land_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport);
  void finish_send(Cursor::Slot slot, Counters& counters);
  Way way_out(Cursor::Slot slot, Transport& transport);
  bool worth_lending(Cursor::Slot slot, Transport& transport) const;
  bool next_receive_overwrites(Cursor::Slot send) const;
  Result<bool> advance_recv(Cursor::Slot slot, std::uint64_t limit, Transport& transport, Counters& counters);
  Result<bool> take_from_stream(Cursor::Slot slot, std::uint64_t limit, Transport& transport, Counters& counters);
  Result<std::uint64_t> take_and_combine(Cursor::Slot slot, std::uint64_t room, Transport& transport,
                                         Counters& counters);
  std::optional<Cursor::Slot> lands_next(Cursor::Slot slot, Transport& transport);
  Result<Echo> open_echo(Cursor::Slot send, Cursor::Slot recv, std::uint64_t wanted, Transport& transport);
  void close_echo(const Echo& echo, Transport& transport);
  void allow_landing(Cursor::Slot slot, std::uint64_t limit, Transport& transport) const;
  Result<bool> take_landed(Cursor::Slot slot, std::uint64_t limit, Transport& transport);
  bool take_from_staging(Cursor::Slot slot, std::uint64_t limit, Counters& counters);
  bool advance_local(Cursor::Slot slot, std::uint64_t limit, Counters& counters);
  std::uint64_t limit_of(Cursor::Slot slot) const;
  std::uint64_t awaited(Cursor::Slot slot) const;
  Cursor::Mask passed_on() const;
  // Writes whole elements as the step's mode says; a combination also to `also`, unless null.
  void write(Cursor::Slot slot, const Region::Stretch& into, const std::byte* from, std::uint64_t bytes,
             Counters& counters, std::byte* also = nullptr);

  Result<bool> take_header(std::uint32_t from, std::uint64_t payload_bytes, Transport& transport);
  Status with_context(Status status, Cursor::Slot slot) const;
  Result<bool> stage_held_back(Transport& transport, Counters& counters);
  bool held_back(Cursor::Slot slot) const;
  Result<bool> open_staging(std::uint32_t peer, std::uint64_t bytes, std::uint64_t arrived, Counters& counters);
  Result<bool> stage_peer(std::uint32_t peer, std::uint64_t payload_bytes, Transport& transport, Counters& counters);
  Staged* staged_from(std::uint32_t peer);

  Setup setup_;
  HeldSteps steps_;
  Cursor cursor_;
  std::vector<bool> divides_;  // by step number; empty if nothing is divided
  FrameBytes header_;          // with payload_bytes to be filled in for each message
  std::array<Progress, limits::lookahead_steps> progress_;
  std::array<std::uint64_t, limits::lookahead_steps> begun_;  // step number + 1 that progress_ belongs to
  std::vector<Staged> staging_;
  std::optional<TimePoint> still_since_;  // the first `stage` since something moved
};

}  // namespace gradsync
