// Landing: messages that the sender writes into the receiver's memory (transport/landing.hpp).
//
// The sender may write before the message's turn on the stream has come: what it writes is not part of the stream. So a block of an
// all-reduce goes back to whoever sent its part as soon as it is reduced, out of the cache, while the rest of that part is
// still being read.
#include <algorithm>

#include "base/wire.hpp"
#include "engine/execution.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kPayloadBytesOffset = 24;  // of payload_bytes in a frame header

}  // namespace

// Where the message's header will be on the stream, while that can be told.
void Execution::note_position(Cursor::Slot slot, Transport& transport) {
  Progress& progress = progress_[slot];
  if (cursor_.step(slot).verb != Verb::send || setup_.channel != Channel::collective) return;
  if (progress.bytes < limits::landing_bytes_min) return;
  const std::optional<std::uint64_t> ahead = stream_ahead_of(slot);
  const auto position = transport.sent_position({cursor_.step(slot).peer, setup_.channel});
  if (ahead && position) progress.header_position = *position + *ahead;
}

// Like a loan, not where the next receive overwrites what is sent: each of two ranks would wait for the other.
bool Execution::accept_landing(Cursor::Slot slot, Transport& transport) {
  Progress& progress = progress_[slot];
  if (progress.header_position && !next_receive_overwrites(slot))
    progress.landing = transport.take_landing({cursor_.step(slot).peer, setup_.channel}, *progress.header_position,
                                              fingerprint(progress.bytes));
  return progress.landing.has_value();
}

// A send whose turn on the stream has not come.
Result<bool> Execution::land_early(Cursor::Slot slot, Transport& transport) {
  Progress& progress = progress_[slot];
  if (!progress.header_position) return false;
  const std::uint64_t limit = limit_of(slot);
  if (limit == 0) return false;
  if (progress.way == Way::undecided && accept_landing(slot, transport)) progress.way = Way::landed;
  return progress.way == Way::landed ? land(slot, limit, transport) : Result<bool>(false);
}

// Writes what may be written of the landing.
Result<bool> Execution::land(Cursor::Slot slot, std::uint64_t limit, Transport& transport) {
  Progress& progress = progress_[slot];
  const Transport::Landing& landing = *progress.landing;
  bool moved = false;
  while (landing.skip + progress.landed < std::min(limit, landing.skip + landing.bytes)) {
    const std::uint64_t at = landing.skip + progress.landed;
    const Region::Stretch from = progress.target.from(at);
    const std::uint64_t bytes = std::min({from.bytes, limit - at, landing.bytes - progress.landed});
    Result<std::size_t> written =
        transport.land({cursor_.step(slot).peer, setup_.channel}, {from.data, static_cast<std::size_t>(bytes)});
    if (!written) return written.status();
    if (*written == 0) break;
    progress.landed += *written;
    moved = true;
  }
  return moved;
}

// The next step is a send of the very bytes that this one completes, which land and have landed as far as this one has come.
std::optional<Cursor::Slot> Execution::lands_next(Cursor::Slot recv, Transport& transport) {
  if (progress_[recv].bytes < limits::landing_bytes_min) return std::nullopt;
  std::optional<Cursor::Slot> found;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    if (cursor_.index(slot) <= cursor_.index(recv) || begun_[slot] != cursor_.index(slot) + 1) return true;
    if (!same_memory(slot, recv)) return true;
    if (cursor_.step(slot).verb != Verb::send || cursor_.hazards(slot) != Cursor::Mask{1} << recv) return false;
    Progress& send = progress_[slot];
    if (send.way == Way::undecided && accept_landing(slot, transport)) send.way = Way::landed;
    if (send.way == Way::landed) found = slot;
    return false;
  });
  return found;
}

Result<Execution::Echo> Execution::open_echo(Cursor::Slot slot, Cursor::Slot recv, std::uint64_t wanted,
                                             Transport& transport) {
  const Progress& send = progress_[slot];
  const std::size_t element = setup_.binding.element_bytes;
  const std::uint64_t begin = send.landing->skip, end = begin + send.landing->bytes, at = progress_[recv].done;
  if (begin % element != 0 || at >= end) return Echo{};
  if (at < begin) return Echo{slot, nullptr, std::min(wanted, begin - at)};
  if (at != begin + send.landed) return Echo{};
  const Peer to{cursor_.step(slot).peer, setup_.channel};
  wanted = std::min({wanted, end - at, std::uint64_t{limits::piece_bytes}}) / element * element;
  auto place = transport.begin_land(to, wanted, to.rank == cursor_.step(recv).peer ? wanted : 0);
  if (!place) return place.status();
  if (place->empty()) return Echo{};
  const std::uint64_t bytes = place->size() / element * element;
  if (bytes == 0) return transport.end_land(to, 0), Echo{};
  return Echo{slot, place->data(), bytes};
}

void Execution::close_echo(const Echo& echo, Transport& transport) {
  transport.end_land({cursor_.step(echo.send).peer, setup_.channel}, static_cast<std::size_t>(echo.bytes));
  progress_[echo.send].landed += echo.bytes;
}

// The header and what lies before and after the landing go through the stream.
Result<bool> Execution::land_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport) {
  Progress& progress = progress_[slot];
  const std::uint64_t begin = progress.landing->skip, end = begin + progress.landing->bytes;
  Result<bool> moved = land(slot, limit, transport);
  if (!moved) return moved;
  const auto copy = [&](std::uint64_t to) {
    Result<bool> copied = copy_out(slot, to, transport);
    if (!copied) moved = copied;
    else moved = *moved || *copied;
    return copied.ok();
  };
  if (progress.done < begin || progress.header_done < limits::frame_header_bytes)
    if (!copy(std::min(limit, begin))) return moved;
  if (progress.header_done < limits::frame_header_bytes || progress.done < begin) return moved;
  if (progress.done < end) progress.done = begin + progress.landed;
  if (progress.done >= end && progress.done < limit) copy(limit);
  return moved;
}

void Execution::allow_landing(Cursor::Slot slot, std::uint64_t limit, Transport& transport) const {
  const Transport::Landing& landing = *progress_[slot].landing;
  const std::uint64_t allowed = std::clamp(limit, landing.skip, landing.skip + landing.bytes) - landing.skip;
  transport.allow_landing({cursor_.step(slot).peer, setup_.channel}, allowed);
}

// After the header has come. The landing is forgotten once it is complete, or if the sender did not accept it.
Result<bool> Execution::take_landed(Cursor::Slot slot, std::uint64_t limit, Transport& transport) {
  Progress& progress = progress_[slot];
  const Peer from{cursor_.step(slot).peer, setup_.channel};
  auto landed = transport.landed(from);
  if (!landed) return landed.status();
  if (!*landed) {
    progress.landing.reset();
    return false;
  }
  allow_landing(slot, limit, transport);
  const Transport::Landing landing = *progress.landing;
  if (progress.done < landing.skip) return false;  // what comes before it is in the stream
  const bool moved = landing.skip + **landed > progress.done;
  progress.done = landing.skip + **landed;
  if (**landed == landing.bytes) {
    transport.end_landing(from);
    progress.landing.reset();
  }
  return moved;
}

// A long message that is to be assigned to registered memory. Earlier steps that touch the same memory may hold it up only if
// they are sends to this very peer: it reads those before it can have what it sends. What was reduced from other memory goes
// through fewer caches if the receiver fetches it, once it is long.
bool Execution::may_land(Cursor::Slot slot) const {
  const Step& step = cursor_.step(slot);
  const Progress& progress = progress_[slot];
  if (step.verb != Verb::recv || step.mode != Mode::assign || progress.divides) return false;
  if (setup_.channel != Channel::collective || progress.bytes < limits::landing_bytes_min) return false;
  if (progress.target.stretches()[1].bytes != 0) return false;
  const bool apart = cursor_.hazards(slot) == 0 && setup_.call.collective == Collective::all_reduce;
  if (apart && progress.bytes > limits::landing_apart_bytes_max) return false;
  for (Cursor::Mask left = cursor_.hazards(slot); left != 0; left &= left - 1) {
    const Step& earlier = cursor_.step(Cursor::next_slot(left));
    if (earlier.verb != Verb::send || earlier.peer != step.peer) return false;
  }
  return true;
}

// Whether the peer is offered a place: it does the same for us where the ranks of a collective do alike.
bool Execution::lands_from(std::uint32_t peer) const {
  bool lands = false;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    lands = cursor_.step(slot).verb == Verb::recv && cursor_.step(slot).peer == peer &&
            begun_[slot] == cursor_.index(slot) + 1 && progress_[slot].landing;
    return !lands;
  });
  return lands;
}

void Execution::offer_landing(Cursor::Slot slot, Transport& transport) {
  if (!may_land(slot)) return;
  const std::optional<std::uint64_t> ahead = stream_ahead_of(slot);
  if (!ahead) return;
  Progress& progress = progress_[slot];
  const Region::Stretch into = progress.target.from(0);
  Transport::LandingOffer offer{*ahead, fingerprint(progress.bytes), {into.data, static_cast<std::size_t>(into.bytes)}};
  if (const Cursor::Mask held = cursor_.hazards(slot); held != 0 && (held & (held - 1)) == 0)
    if (const Cursor::Slot send = Cursor::next_slot(held); same_memory(send, slot))
      if (const auto before = stream_ahead_of(send)) offer.same_memory_ahead = *before + limits::frame_header_bytes;
  progress.landing = transport.offer_landing({cursor_.step(slot).peer, setup_.channel}, offer);
}

bool Execution::same_memory(Cursor::Slot a, Cursor::Slot b) const {
  const Region::Stretch one = progress_[a].target.from(0), other = progress_[b].target.from(0);
  return one.data == other.data && one.bytes == other.bytes && progress_[a].bytes == progress_[b].bytes;
}

// Bytes of the stream from or to the peer before the step's message; nothing if some of them have moved already.
std::optional<std::uint64_t> Execution::stream_ahead_of(Cursor::Slot slot) const {
  std::optional<std::uint64_t> ahead =
      progress_[slot].header_done == 0 ? std::optional<std::uint64_t>(0) : std::nullopt;
  const std::uint32_t peer = cursor_.step(slot).peer;
  const Verb verb = cursor_.step(slot).verb;
  if (std::any_of(staging_.begin(), staging_.end(), [&](const Staged& s) { return s.peer == peer; }))
    return std::nullopt;
  cursor_.for_each_live([&](Cursor::Slot earlier) {
    if (cursor_.index(earlier) >= cursor_.index(slot)) return false;
    if (cursor_.step(earlier).verb != verb || cursor_.step(earlier).peer != peer) return true;
    if (progress_[earlier].header_done != 0) ahead.reset();
    else *ahead += limits::frame_header_bytes + progress_[earlier].bytes;
    return ahead.has_value();
  });
  return ahead;
}

std::uint64_t Execution::fingerprint(std::uint64_t payload_bytes) const {
  FrameBytes header = header_;
  WireWriter(std::span(header).subspan(kPayloadBytesOffset)).u64(payload_bytes);
  return fingerprint_of(header);
}

}  // namespace gradsync
