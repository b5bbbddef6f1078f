// The receiving side's care: frame headers, mismatches, and staging for messages that land before they can take effect.
#include <algorithm>
#include <new>

#include "engine/execution.hpp"

namespace gradsync {
// Consumes the next frame's header if it is there and as expected.
Result<bool> Execution::take_header(std::uint32_t from, std::uint64_t payload_bytes, Transport& transport) {
  const Peer peer{from, setup_.channel};
  Result<std::span<const std::byte>> shown = transport.peek(peer, limits::frame_header_bytes);
  if (!shown) return shown.status();
  if (shown->size() < limits::frame_header_bytes) return false;
  Result<FrameHeader> header = decode_frame(shown->first(limits::frame_header_bytes));
  if (!header) return header.status();
  if (Status status = check_header(setup_, from, *header, payload_bytes); !status.ok()) return status;
  transport.consume(peer, limits::frame_header_bytes);
  return true;
}

Status Execution::adopt(const FrameHeader& header, std::unique_ptr<std::byte[]> data, std::uint64_t arrived) {
  const Cursor::Slot slot = Cursor::next_slot(cursor_.live());
  begin(slot);
  Progress& progress = progress_[slot];
  const std::uint32_t from = cursor_.step(slot).peer;
  if (Status status = check_header(setup_, from, header, progress.bytes); !status.ok())
    return with_context(status, slot);
  progress.header_done = limits::frame_header_bytes;
  progress.staged = data != nullptr;
  if (data) staging_.push_back({from, std::move(data), progress.bytes, arrived});
  return {};
}

Status Execution::check_senders(Transport& transport) {
  if (setup_.channel != Channel::collective) return {};
  std::vector<std::uint32_t> senders;
  transport.append_senders(setup_.channel, senders);
  for (std::uint32_t from : senders) {
    const bool mid_message = [&] {
      bool inside = false;
      cursor_.for_each_live([&](Cursor::Slot slot) {
        const Step& step = cursor_.step(slot);
        inside = step.verb == Verb::recv && step.peer == from && begun_[slot] == cursor_.index(slot) + 1 &&
                 progress_[slot].header_done != 0;
        return !inside;
      });
      return inside || staged_from(from) != nullptr;
    }();
    if (mid_message) continue;
    if (Status status = check_first_frame(setup_, from, transport); !status.ok()) return status;
  }
  return {};
}

Status Execution::with_context(Status status, Cursor::Slot slot) const {
  const std::string operation = operation_name(setup_.call, setup_.sequence);
  if (status.code == ErrorCode::mismatch) {
    status.message = fmt::format("{}: {}", operation, status.message);
    return status;
  }
  const Step& step = cursor_.step(slot);
  if (status.peer < 0 && step.verb != Verb::local) status.peer = static_cast<int>(step.peer);
  status.message = fmt::format("{} rank {} step {}: {} ({})", step.verb == Verb::recv ? "recv from" : "send to",
                               step.peer, cursor_.index(slot), status.message, operation);
  return status;
}

Execution::Staged* Execution::staged_from(std::uint32_t peer) {
  const auto it = std::find_if(staging_.begin(), staging_.end(), [&](const Staged& s) { return s.peer == peer; });
  return it == staging_.end() ? nullptr : &*it;
}

// Every peer that we still have to receive from gets one message staged, that of its next recv step, if that step is beyond
// the lookahead: its sender may hold up others. The steps within take their messages themselves.
Result<bool> Execution::stage(Transport& transport, Counters& counters, TimePoint now) {
  if (!still_since_) still_since_ = now;
  bool moved = false;
  std::vector<std::uint32_t> senders, seen;
  transport.append_senders(setup_.channel, senders);
  std::uint64_t first_live = setup_.schedule->steps.size();
  cursor_.for_each_live([&](Cursor::Slot slot) {
    first_live = cursor_.index(slot);
    return false;
  });
  const auto has = [](const std::vector<std::uint32_t>& list, std::uint32_t rank) {
    return std::find(list.begin(), list.end(), rank) != list.end();
  };
  for (std::uint64_t i = first_live; i < setup_.schedule->steps.size() && seen.size() < senders.size(); ++i) {
    const Step& step = setup_.schedule->steps[static_cast<std::size_t>(i)];
    if (step.verb != Verb::recv || has(seen, step.peer) || !has(senders, step.peer)) continue;
    if (cursor_.is_done(i)) continue;
    seen.push_back(step.peer);
    if (cursor_.is_live(i)) continue;
    Result<bool> staged =
        stage_peer(step.peer, setup_.binding.region(step.space, step.range()).bytes(), transport, counters);
    if (!staged) return staged;
    moved = moved || *staged;
  }
  if (!moved && now - *still_since_ >= limits::held_back_patience) return stage_held_back(transport, counters);
  return moved;
}

// A message that goes straight to its place, and whose step may not go on before an earlier one has.
bool Execution::held_back(Cursor::Slot slot) const {
  const Progress& progress = progress_[slot];
  return cursor_.step(slot).verb == Verb::recv && begun_[slot] == cursor_.index(slot) + 1 &&
         progress.header_done != 0 && !progress.staged && !progress.landing && progress.done < progress.bytes &&
         progress.done == limit_of(slot);
}

std::optional<TimePoint> Execution::stages_at() const {
  if (!still_since_) return std::nullopt;
  bool any = false;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    any = held_back(slot);
    return !any;
  });
  return any ? std::optional(*still_since_ + limits::held_back_patience) : std::nullopt;
}

// Bytes that a step could move now if its peer or the network let it; 0 if it is held up here.
std::uint64_t Execution::awaited(Cursor::Slot slot) const {
  const Progress& progress = progress_[slot];
  if (cursor_.step(slot).verb == Verb::local || begun_[slot] != cursor_.index(slot) + 1) return 0;
  if (cursor_.channel_order(slot) != 0) return 0;
  if (cursor_.step(slot).verb == Verb::recv && progress.header_done == 0) return progress.bytes;
  return limit_of(slot) - progress.done;
}

bool Execution::waits_for_bulk(const Transport& transport) const {
  bool any = false, bulk = true;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    const std::uint64_t bytes = awaited(slot);
    if (bytes == 0) return true;
    any = true;
    bulk = bytes >= limits::bulk_bytes_min && transport.remote(cursor_.step(slot).peer);
    return bulk;
  });
  return any && bulk;
}

// Steps whose next bytes a send passes on as soon as they are there, itself or through local steps.
Cursor::Mask Execution::passed_on() const {
  Cursor::Mask found = 0, added = 0;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    const bool waits = cursor_.step(slot).verb == Verb::send && begun_[slot] == cursor_.index(slot) + 1 &&
                       cursor_.channel_order(slot) == 0 && progress_[slot].done != progress_[slot].bytes &&
                       progress_[slot].done == limit_of(slot);
    if (waits) added |= cursor_.hazards(slot);
    return true;
  });
  while ((added & ~found) != 0) {
    const Cursor::Slot slot = Cursor::next_slot(added & ~found);
    found |= Cursor::Mask{1} << slot;
    if (cursor_.step(slot).verb == Verb::local) added |= cursor_.hazards(slot);
  }
  return found;
}

void Execution::await(Transport& transport) const {
  const Cursor::Mask passed = passed_on();
  cursor_.for_each_live([&](Cursor::Slot slot) {
    const Progress& progress = progress_[slot];
    const bool taking = cursor_.step(slot).verb == Verb::recv && progress.header_done != 0 && !progress.staged &&
                        !progress.landing && (passed >> slot & 1u) == 0;
    if (const std::uint64_t bytes = taking ? awaited(slot) : 0; bytes != 0)
      transport.await({cursor_.step(slot).peer, setup_.channel}, bytes);
    return true;
  });
}

Result<bool> Execution::stage_held_back(Transport& transport, Counters& counters) {
  Result<bool> moved = false;
  cursor_.for_each_live([&](Cursor::Slot slot) {
    if (!held_back(slot)) return true;
    const std::uint32_t peer = cursor_.step(slot).peer;
    Result<std::span<const std::byte>> shown = transport.peek({peer, setup_.channel}, 1);
    if (!shown) return moved = shown.status(), false;
    if (shown->empty()) return true;
    Progress& progress = progress_[slot];
    Result<bool> opened = open_staging(peer, progress.bytes, progress.done, counters);
    if (opened) opened = stage_peer(peer, progress.bytes, transport, counters);
    if (!opened) return moved = opened, false;
    progress.staged = true;
    moved = true;
    return true;
  });
  return moved;
}

Result<bool> Execution::open_staging(std::uint32_t peer, std::uint64_t bytes, std::uint64_t arrived,
                                     Counters& counters) {
  std::unique_ptr<std::byte[]> data(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
  if (!data)
    return failure(ErrorCode::out_of_memory, "no memory for the {} bytes of an early message of rank {}", bytes, peer);
  staging_.push_back({peer, std::move(data), bytes, arrived});
  std::uint64_t total = 0;
  for (const Staged& s : staging_) total += s.bytes;
  counters.staging_bytes_peak = std::max(counters.staging_bytes_peak, total);
  return true;
}

Result<bool> Execution::stage_peer(std::uint32_t peer, std::uint64_t payload_bytes, Transport& transport,
                                   Counters& counters) {
  Staged* staged = staged_from(peer);
  if (!staged) {
    Result<bool> taken = take_header(peer, payload_bytes, transport);
    if (!taken || !*taken) return taken;
    Result<bool> opened = open_staging(peer, payload_bytes, 0, counters);
    if (!opened) return opened;
    staged = &staging_.back();
  }
  const std::span<std::byte> rest(staged->data.get() + staged->arrived,
                                  static_cast<std::size_t>(staged->bytes - staged->arrived));
  if (rest.empty()) return false;
  Result<std::size_t> got = transport.receive({peer, setup_.channel}, rest);
  if (!got) return got.status();
  staged->arrived += *got;
  return *got > 0;
}

}  // namespace gradsync
