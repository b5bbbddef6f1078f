#include "engine/execution.hpp"

#include <algorithm>
#include <cstring>

#include "base/wire.hpp"
#include "engine/division.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kCopyBytes = 128u << 10;  // a local step's unit: other steps get their turn in between
constexpr std::size_t kPayloadBytesOffset = 24;   // of payload_bytes in a frame header

std::uint64_t round_down(std::uint64_t bytes, std::uint64_t unit) { return bytes / unit * unit; }

}  // namespace

Execution::Execution(Setup setup)
    : setup_(std::move(setup)),
      steps_(setup_.schedule->steps),
      cursor_(steps_, setup_.schedule->shape, setup_.aliasing),
      header_(encode({setup_.epoch, setup_.sequence, 0, setup_.call})) {
  begun_.fill(0);
  if (setup_.binding.divisor > 1) divides_ = dividing_steps(*setup_.schedule);
}

void Execution::begin(Cursor::Slot slot) {
  begun_[slot] = cursor_.index(slot) + 1;
  const Step& step = cursor_.step(slot);
  Progress progress;
  progress.target = setup_.binding.region(step.space, step.range());
  if (step.verb == Verb::local) progress.source = setup_.binding.region(step.source_space, step.source_range());
  progress.bytes = progress.target.bytes();
  progress.divides = !divides_.empty() && divides_[static_cast<std::size_t>(cursor_.index(slot))];
  progress_[slot] = progress;
}

void Execution::begin_if_new(Cursor::Slot slot, Transport& transport) {
  if (begun_[slot] == cursor_.index(slot) + 1) return;
  begin(slot);
  if (cursor_.step(slot).verb == Verb::recv) offer_landing(slot, transport);
  else note_position(slot, transport);
}

Result<bool> Execution::advance(Transport& transport, Counters& counters) {
  bool moved = false;
  Status failed;
  // All live steps before any moves: a peer that sees this rank move also sees what it offers.
  cursor_.for_each_live([&](Cursor::Slot slot) { return begin_if_new(slot, transport), true; });
  cursor_.for_each_live([&](Cursor::Slot slot) {
    begin_if_new(slot, transport);  // it may have become live since
    Result<bool> step_moved =
        cursor_.channel_order(slot) == 0 ? advance_step(slot, transport, counters) : land_early(slot, transport);
    if (!step_moved) {
      failed = with_context(step_moved.status(), slot);
      return false;
    }
    moved = moved || *step_moved;
    return true;
  });
  if (!failed.ok()) return failed;
  if (moved) still_since_.reset();
  return moved;
}

Result<bool> Execution::advance_step(Cursor::Slot slot, Transport& transport, Counters& counters) {
  // An empty step has no byte that could follow at a distance; a barrier is made of such steps.
  if (progress_[slot].bytes == 0 && !cursor_.ready(slot)) return false;
  const std::uint64_t limit = limit_of(slot);
  switch (cursor_.step(slot).verb) {
    case Verb::send: return advance_send(slot, limit, transport, counters);
    case Verb::recv: return advance_recv(slot, limit, transport, counters);
    case Verb::local: break;
  }
  return advance_local(slot, limit, counters);
}

// How far the step may go: not past what an earlier conflicting step has yet to pass, in whole elements.
std::uint64_t Execution::limit_of(Cursor::Slot slot) const {
  const Progress& mine = progress_[slot];
  const Step& step = cursor_.step(slot);
  std::uint64_t limit = mine.bytes;
  for (Cursor::Mask left = cursor_.hazards(slot); left != 0; left &= left - 1) {
    const Cursor::Slot earlier = Cursor::next_slot(left);
    const Progress& theirs = progress_[earlier];
    const Step& other = cursor_.step(earlier);
    const auto meet = [&](const Region& a, const Region& b) {
      limit = std::min(limit, first_conflict(a, mine.done, b, theirs.done));
    };
    if (step.writes() || other.writes()) meet(mine.target, theirs.target);
    if (step.writes() && other.verb == Verb::local) meet(mine.target, theirs.source);
    if (step.verb == Verb::local && other.writes()) meet(mine.source, theirs.target);
  }
  return limit == mine.bytes ? limit : std::max(mine.done, round_down(limit, setup_.binding.element_bytes));
}

Result<bool> Execution::advance_send(Cursor::Slot slot, std::uint64_t limit, Transport& transport, Counters& counters) {
  Progress& progress = progress_[slot];
  // The header goes out with the first bytes, or alone for an empty message: a message is begun when it can go on.
  if (progress.done == limit && progress.bytes != progress.done) return false;
  if (progress.way == Way::undecided) progress.way = way_out(slot, transport);
  if (progress.way == Way::landed) {
    Result<bool> landed = land_out(slot, limit, transport);
    if (!landed) return landed;
    finish_send(slot, counters);
    return landed;
  }
  bool moved = false;
  if (progress.way == Way::copied || progress.header_done < limits::frame_header_bytes) {
    Result<bool> copied = copy_out(slot, progress.way == Way::lent ? 0 : limit, transport);
    if (!copied) return copied;
    moved = *copied;
  }
  if (progress.way == Way::lent && progress.header_done == limits::frame_header_bytes) {
    Result<bool> lent = lend_out(slot, limit, transport);
    if (!lent) return lent;
    moved = *lent || moved;
  }
  finish_send(slot, counters);
  return moved;
}

void Execution::finish_send(Cursor::Slot slot, Counters& counters) {
  const Progress& progress = progress_[slot];
  if (progress.header_done != limits::frame_header_bytes || progress.done != progress.bytes) return;
  ++counters.messages_sent;
  counters.bytes_sent += progress.bytes;
  cursor_.complete(slot);
}

Execution::Way Execution::way_out(Cursor::Slot slot, Transport& transport) {
  if (accept_landing(slot, transport)) return Way::landed;
  return worth_lending(slot, transport) ? Way::lent : Way::copied;
}

Result<bool> Execution::copy_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport) {
  Progress& progress = progress_[slot];
  FrameBytes header = header_;
  WireWriter(std::span(header).subspan(kPayloadBytesOffset)).u64(progress.bytes);
  std::array<std::span<const std::byte>, 3> pieces;
  std::size_t count = 0;
  if (progress.header_done < header.size()) pieces[count++] = std::span(header).subspan(progress.header_done);
  for (std::uint64_t at = progress.done; at < limit && count < pieces.size();) {
    const Region::Stretch stretch = progress.target.from(at);
    const std::uint64_t bytes = std::min(stretch.bytes, limit - at);
    pieces[count++] = {stretch.data, static_cast<std::size_t>(bytes)};
    at += bytes;
  }
  Result<std::size_t> taken = transport.send({cursor_.step(slot).peer, setup_.channel}, {pieces.data(), count});
  if (!taken) return taken.status();
  const std::uint64_t of_header = std::min<std::uint64_t>(*taken, header.size() - progress.header_done);
  progress.header_done += of_header;
  progress.done += *taken - of_header;
  return *taken > 0;
}

// One loan a stretch. A byte counts as done, so that later steps may overwrite it, once the peer has read it.
Result<bool> Execution::lend_out(Cursor::Slot slot, std::uint64_t limit, Transport& transport) {
  Progress& progress = progress_[slot];
  const Region::Stretch& first = progress.target.stretches()[0];
  const bool in_first = progress.done < first.bytes;
  const std::uint64_t begin = in_first ? 0 : first.bytes;
  const Region::Stretch& stretch = in_first ? first : progress.target.stretches()[1];
  const std::uint64_t ready = std::min(limit - begin, stretch.bytes);
  auto lent = transport.lend({cursor_.step(slot).peer, setup_.channel},
                             {stretch.data, static_cast<std::size_t>(stretch.bytes)}, static_cast<std::size_t>(ready));
  if (!lent) return lent.status();
  if (!*lent) {
    progress.way = Way::copied;
    return true;
  }
  const bool moved = begin + **lent > progress.done || begin + ready > progress.offered;
  progress.done = begin + **lent;
  progress.offered = begin + ready;
  return moved;
}

// A message between two ranks is lent only where a copy could not have ended before the receiver comes: users count on
// sends that fit the stream. A loan holds up the next message of its stream; where messages land that is of no account.
bool Execution::worth_lending(Cursor::Slot slot, Transport& transport) const {
  const Progress& progress = progress_[slot];
  std::uint64_t least = limits::ring_bytes_default + 1;
  if (setup_.channel == Channel::collective)
    least = lands_from(cursor_.step(slot).peer) ? limits::landing_bytes_min : limits::loan_bytes_min;
  if (progress.bytes < least) return false;
  for (const Region::Stretch& stretch : progress.target.stretches()) {
    const std::span<const std::byte> bytes(stretch.data, static_cast<std::size_t>(stretch.bytes));
    if (!bytes.empty() && !transport.lends({cursor_.step(slot).peer, setup_.channel}, bytes)) return false;
  }
  return !next_receive_overwrites(slot);
}

// Where two ranks exchange one range in place, each would wait for the other to have read what it is about to overwrite.
bool Execution::next_receive_overwrites(Cursor::Slot send) const {
  bool overwrites = false;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    if (cursor_.index(slot) < cursor_.index(send) || cursor_.step(slot).verb != Verb::recv) return true;
    overwrites = (cursor_.hazards(slot) >> send & 1u) != 0;
    return false;
  });
  return overwrites;
}

Result<bool> Execution::advance_recv(Cursor::Slot slot, std::uint64_t limit, Transport& transport, Counters& counters) {
  Progress& progress = progress_[slot];
  const std::uint32_t from = cursor_.step(slot).peer;
  bool moved = false;
  if (progress.header_done == 0) {
    if (progress.landing) allow_landing(slot, limit, transport);
    if (staged_from(from)) {
      progress.staged = true;
    } else {
      Result<bool> taken = take_header(from, progress.bytes, transport);
      if (!taken || !*taken) return taken;
    }
    progress.header_done = limits::frame_header_bytes;
    moved = true;
  }
  if (progress.staged) {
    Result<bool> more = stage_peer(from, progress.bytes, transport, counters);
    if (!more) return more;
    moved = take_from_staging(slot, limit, counters) || *more || moved;
  } else {
    Result<bool> taken = take_from_stream(slot, limit, transport, counters);
    if (!taken) return taken;
    moved = *taken || moved;
  }
  if (progress.done == progress.bytes) {
    ++counters.messages_received;
    counters.bytes_received += progress.bytes;
    if (progress.staged) std::erase_if(staging_, [&](const Staged& s) { return s.peer == from; });
    cursor_.complete(slot);
  }
  return moved;
}

Result<bool> Execution::take_from_stream(Cursor::Slot slot, std::uint64_t limit, Transport& transport,
                                         Counters& counters) {
  Progress& progress = progress_[slot];
  const Step& step = cursor_.step(slot);
  const Peer from{step.peer, setup_.channel};
  const std::uint64_t start = progress.done;
  if (progress.landing) {
    Result<bool> landed = take_landed(slot, limit, transport);
    if (!landed) return landed;
    if (progress.landing && progress.done >= progress.landing->skip) return landed;  // more is to land
    if (progress.landing) limit = std::min(limit, progress.landing->skip);
  }
  while (progress.done < limit) {
    const Region::Stretch into = progress.target.from(progress.done);
    const std::uint64_t room = std::min({into.bytes, limit - progress.done, kCopyBytes});
    if (step.mode == Mode::assign && !progress.divides) {
      Result<std::size_t> got = transport.receive(from, {into.data, static_cast<std::size_t>(room)});
      if (!got) return got.status();
      progress.done += *got;
      if (*got == 0) break;
    } else {
      Result<std::uint64_t> taken = take_and_combine(slot, room, transport, counters);
      if (!taken) return taken.status();
      if (*taken == 0) break;
    }
    if (progress.done - start >= kCopyBytes) break;  // the other steps' turn
  }
  return progress.done > start;
}

// At most `room` bytes, which lie contiguously. What is complete with that and lands at a peer is written there at once, too.
Result<std::uint64_t> Execution::take_and_combine(Cursor::Slot slot, std::uint64_t room, Transport& transport,
                                                  Counters& counters) {
  Progress& progress = progress_[slot];
  const Peer from{cursor_.step(slot).peer, setup_.channel};
  const std::size_t element = setup_.binding.element_bytes;
  Result<std::span<const std::byte>> shown = transport.peek(from, element);
  if (!shown) return shown.status();
  std::uint64_t bytes = round_down(std::min<std::uint64_t>(shown->size(), room), element);
  if (bytes == 0) return bytes;
  Echo echo;
  if (const auto send = lands_next(slot, transport)) {
    Result<Echo> opened = open_echo(*send, slot, bytes, transport);
    if (!opened) return opened.status();
    echo = *opened;
    if (echo.bytes != 0) bytes = echo.bytes;
  }
  write(slot, progress.target.from(progress.done), shown->data(), bytes, counters, echo.place);
  if (echo.place != nullptr) close_echo(echo, transport);
  if (!transport.consume(from, static_cast<std::size_t>(bytes))) return transport.peek(from, 1).status();
  progress.done += bytes;
  return bytes;
}

bool Execution::take_from_staging(Cursor::Slot slot, std::uint64_t limit, Counters& counters) {
  Progress& progress = progress_[slot];
  const Staged& staged = *staged_from(cursor_.step(slot).peer);
  const std::uint64_t start = progress.done;
  const std::uint64_t end = std::min(limit, round_down(staged.arrived, setup_.binding.element_bytes));
  while (progress.done < end) {
    const Region::Stretch into = progress.target.from(progress.done);
    const std::uint64_t bytes = std::min(into.bytes, end - progress.done);
    write(slot, into, staged.data.get() + progress.done, bytes, counters);
    progress.done += bytes;
  }
  return progress.done > start;
}

bool Execution::advance_local(Cursor::Slot slot, std::uint64_t limit, Counters& counters) {
  Progress& progress = progress_[slot];
  const bool assign = cursor_.step(slot).mode == Mode::assign;
  const std::uint64_t start = progress.done, end = std::min(limit, start + kCopyBytes);
  while (progress.done < end) {
    const Region::Stretch into = progress.target.from(progress.done), from = progress.source.from(progress.done);
    std::uint64_t bytes = std::min({into.bytes, from.bytes, end - progress.done});
    if (assign && !progress.divides && into.data == from.data)
      bytes = std::min(into.bytes, from.bytes);  // in place: nothing to do, no hazard
    else write(slot, into, from.data, bytes, counters);
    progress.done += bytes;
  }
  const bool moved = progress.done > start || progress.bytes == 0;
  if (progress.done == progress.bytes) cursor_.complete(slot);
  return moved;
}

void Execution::write(Cursor::Slot slot, const Region::Stretch& into, const std::byte* from, std::uint64_t bytes,
                      Counters& counters, std::byte* also) {
  const Binding& binding = setup_.binding;
  const std::uint64_t count = bytes / binding.element_bytes;
  const auto elements = static_cast<std::size_t>(count);
  const bool divides = progress_[slot].divides;
  if (cursor_.step(slot).mode == Mode::combine) {
    if (divides) kernels::combine_and_divide(binding.work, binding.divisor, into.data, from, elements, also);
    else kernels::combine(binding.work, binding.op, into.data, from, elements, also);
    counters.elements_reduced += count;
  } else if (divides) {
    kernels::divide(binding.work, binding.divisor, into.data, from, elements);
  } else {
    std::memcpy(into.data, from, static_cast<std::size_t>(bytes));
  }
}

int Execution::waits_for() const {
  int peer = -1;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    if (cursor_.step(slot).verb == Verb::local) return true;
    peer = static_cast<int>(cursor_.step(slot).peer);
    return cursor_.step(slot).verb != Verb::recv;  // an awaited message says more than a full stream
  });
  return peer;
}

std::string Execution::waits_in_words() const {
  std::string words = "nothing";
  cursor_.for_each_live([&](Cursor::Slot slot) {
    const Step& step = cursor_.step(slot);
    if (step.verb == Verb::local) return true;
    const bool begun = begun_[slot] == cursor_.index(slot) + 1;
    words = fmt::format("{} rank {}, step {}, {} of {} bytes done", step.verb == Verb::recv ? "recv from" : "send to",
                        step.peer, cursor_.index(slot), begun ? progress_[slot].done : 0,
                        setup_.binding.region(step.space, step.range()).bytes());
    return step.verb != Verb::recv;
  });
  return words;
}

}  // namespace gradsync
