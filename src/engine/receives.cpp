#include "engine/receives.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace gradsync {
namespace {

constexpr int kMovesPerTurn = 32;         // of one stream, two a message, before the others have theirs
constexpr std::size_t kIdleMax = 16;      // sources and lines that are kept for the next receive
constexpr std::uint64_t kKeptCost = 256;  // of a kept message besides its payload, at most

}  // namespace

Status Receives::post(std::unique_ptr<Operation> operation) {
  const Request& request = operation->request();
  const std::uint32_t sender = request.any_source ? kAny : request.schedule->recipe.root, tag = request.call.tag;
  epoch_ = operation->epoch();
  rank_ = request.schedule->rank;
  world_ = request.schedule->recipe.world;
  ++posted_;
  if (const auto from = kept_for(sender, tag); from != sources_.end()) return claim(from, std::move(operation));
  if (request.any_source) ++any_waiting_;
  else ++sources_[sender].waiting;
  waiting_[{sender, tag}].push_back({++order_, std::move(operation)});
  return {};
}

// Whose kept message the receive gets, end() if none: of several, the ranks after the last that a receive of any rank got
// one of have their turn first.
Receives::Sources::iterator Receives::kept_for(std::uint32_t sender, std::uint32_t tag) {
  const auto has = [&](const auto& entry) { return entry.second.kept.contains(tag); };
  if (sender != kAny) {
    const auto found = sources_.find(sender);
    return found != sources_.end() && has(*found) ? found : sources_.end();
  }
  if (kept_count_ == 0) return sources_.end();
  const auto turn = sources_.upper_bound(last_any_);
  const auto found = std::find_if(turn, sources_.end(), has);
  if (found != sources_.end()) return found;
  const auto before = std::find_if(sources_.begin(), turn, has);
  return before != turn ? before : sources_.end();
}

Status Receives::claim(Sources::iterator from, std::unique_ptr<Operation> operation) {
  auto& [rank, source] = *from;
  const auto line = source.kept.find(operation->request().call.tag);
  Kept kept = std::move(line->second.front());
  if (source.filling == &line->second.front()) source.filling = nullptr;
  line->second.pop_front();
  if (line->second.empty()) source.kept.erase(line);
  --kept_count_, kept_bytes_ -= kept.header.payload_bytes;
  if (operation->request().any_source) operation->bind_source(last_any_ = rank);
  const bool whole = kept.whole();
  if (Status status = begin(*operation, kept.header, std::move(kept.data), kept.arrived); !status.ok())
    return operation->fail(status), status;
  if (!whole) {
    source.taking = std::move(operation);
    return {};
  }
  const Result<bool> advanced = operation->execution().advance(transport_, counters_);
  if (!advanced) return operation->fail(advanced.status()), advanced.status();
  complete(std::move(operation));
  return {};
}

void Receives::complete(std::unique_ptr<Operation> operation) {
  GRADSYNC_CHECK(operation->execution().finished());
  operation->complete();
  ++counters_.operations;
  --posted_;
}

Status Receives::progress(bool& moved) {
  if (any_waiting_ > 0) add_senders();
  Status lost;
  const auto turn = [&](Sources::iterator at, Sources::iterator end) -> Status {
    while (at != end) {
      Status status = progress_source(at->first, at->second, moved);
      if (status.code == ErrorCode::peer_lost) lost = lost.ok() ? status : lost;
      else if (!status.ok()) return status;
      const bool of_use = !at->second.idle() || any_waiting_ > 0 || sources_.size() <= kIdleMax;
      at = of_use ? std::next(at) : sources_.erase(at);
    }
    return {};
  };
  if (any_waiting_ == 0) {
    Status status = turn(sources_.begin(), sources_.end());
    return status.ok() ? lost : status;
  }
  // No iterator: the first half of the round may erase what it points to.
  const std::uint32_t first = last_any_;
  if (Status status = turn(sources_.upper_bound(first), sources_.end()); !status.ok()) return status;
  if (Status status = turn(sources_.begin(), sources_.upper_bound(first)); !status.ok()) return status;
  return lost;
}

// A rank that has opened no stream is asked after now and then, so that the transport looks for new ones.
void Receives::add_senders() {
  senders_.clear();
  transport_.append_senders(Channel::point_to_point, senders_);
  for (const std::uint32_t rank : senders_) sources_.try_emplace(rank);
  probed_ = (probed_ + 1) % world_;
  if (probed_ != rank_ && !sources_.contains(probed_)) (void)transport_.peek({probed_, Channel::point_to_point}, 1);
}

Status Receives::progress_source(std::uint32_t rank, Source& source, bool& moved) {
  bool any_matched = false;  // then the next receive of any rank is another rank's turn
  for (int i = 0; i < kMovesPerTurn; ++i) {
    if (any_matched && !source.taking) break;
    const std::uint64_t any_before = any_waiting_;
    const Result<bool> goes_on = source.taking    ? take(source, moved)
                                 : source.filling ? fill(rank, source, moved)
                                                  : begin_next(rank, source, moved);
    if (!goes_on) {
      const bool needed = source.taking || source.waiting > 0;
      if (needed || goes_on.status().code != ErrorCode::peer_lost) return goes_on.status();
      forget_partial(source);  // whoever else may send one lives on
      break;
    }
    if (!*goes_on) break;
    any_matched = any_matched || any_waiting_ < any_before;
  }
  return {};
}

// False: there is no more to take for now.
Result<bool> Receives::take(Source& source, bool& moved) {
  Result<bool> advanced = source.taking->execution().advance(transport_, counters_);
  if (!advanced) return advanced;
  moved = moved || *advanced;
  if (!source.taking->execution().finished()) return false;
  complete(std::move(source.taking));
  return moved = true;
}

Result<bool> Receives::fill(std::uint32_t rank, Source& source, bool& moved) {
  Kept& kept = *source.filling;
  const std::span<std::byte> rest(kept.data.get() + kept.arrived,
                                  static_cast<std::size_t>(kept.header.payload_bytes - kept.arrived));
  const Result<std::size_t> got = transport_.receive({rank, Channel::point_to_point}, rest);
  if (!got) return got.status();
  kept.arrived += *got;
  moved = moved || *got > 0;
  if (!kept.whole()) return false;
  source.filling = nullptr;
  return true;
}

// Between two messages: finds out whose the next is. Nobody's, and nobody waits for another one: it stays where it is.
Result<bool> Receives::begin_next(std::uint32_t rank, Source& source, bool& moved) {
  if (source.waiting == 0 && any_waiting_ == 0) return false;
  const auto shown = transport_.peek({rank, Channel::point_to_point}, limits::frame_header_bytes);
  if (!shown) return shown.status();
  if (shown->size() < limits::frame_header_bytes) return prepare(rank, source);
  const auto header = decode_frame(shown->first(limits::frame_header_bytes));
  if (!header) return header.status();
  if (Status wrong = check(rank, *header); !wrong.ok()) return wrong;
  source.taking = match(rank, source, header->call.tag);
  const Status begun = source.taking ? begin(*source.taking, *header, nullptr, 0) : keep(rank, source, *header);
  if (!begun.ok()) return begun;
  transport_.consume({rank, Channel::point_to_point}, limits::frame_header_bytes);
  return moved = true;
}

Status Receives::begin(Operation& operation, const FrameHeader& header, std::unique_ptr<std::byte[]> data,
                       std::uint64_t arrived) {
  if (!operation.started())
    if (Status status = operation.start(pool_); !status.ok()) return status;
  return operation.execution().adopt(header, std::move(data), arrived);
}

// While a message is waited for there is time for what the receive that it will most likely fit needs.
Result<bool> Receives::prepare(std::uint32_t rank, Source& source) {
  if (source.waiting == 0 || std::exchange(source.prepared, true)) return false;
  auto line = waiting_.lower_bound({rank, 0});
  while (line->second.empty()) ++line;  // one that is not follows, as one waits
  Operation& next = *line->second.front().operation;
  if (!next.started())
    if (Status status = next.start(pool_); !status.ok()) return status;
  return false;
}

Status Receives::check(std::uint32_t rank, const FrameHeader& header) const {
  const int peer = static_cast<int>(rank);
  if (header.epoch != epoch_)
    return peer_failure(ErrorCode::protocol, peer, "recv from rank {}: frame of communicator {:016x}, expected {:016x}",
                        rank, header.epoch, epoch_);
  if (header.call.collective != Collective::send)
    return peer_failure(ErrorCode::protocol, peer, "recv from rank {}: frame of {}, expected send", rank,
                        name_of(header.call.collective));
  return {};
}

std::unique_ptr<Operation> Receives::match(std::uint32_t rank, Source& source, std::uint32_t tag) {
  const auto line_of = [&](std::uint32_t sender, std::uint64_t waiting) {
    const auto found = waiting > 0 ? waiting_.find({sender, tag}) : waiting_.end();
    return found == waiting_.end() || found->second.empty() ? waiting_.end() : found;
  };
  auto line = line_of(rank, source.waiting);
  const auto any = line_of(kAny, any_waiting_);
  if (any != waiting_.end() && (line == waiting_.end() || any->second.front().order < line->second.front().order))
    line = any;
  if (line == waiting_.end()) return nullptr;
  std::unique_ptr<Operation> operation = std::move(line->second.front().operation);
  line->second.pop_front();
  if (line->second.empty() && waiting_.size() > kIdleMax) waiting_.erase(line);
  if (operation->request().any_source) {
    operation->bind_source(last_any_ = rank);
    --any_waiting_;
  } else {
    --source.waiting;
    source.prepared = false;
  }
  return operation;
}

Status Receives::keep(std::uint32_t rank, Source& source, const FrameHeader& header) {
  const int peer = static_cast<int>(rank);
  const std::uint64_t needed = kept_bytes_ + header.payload_bytes + (kept_count_ + 1) * kKeptCost;
  if (needed > limits::unexpected_bytes_max)
    return peer_failure(
        ErrorCode::out_of_range, peer,
        "a message of rank {} with tag {}, {} bytes long, lies before what a recv waits for; with it and {} "
        "others {} bytes would be kept, the limit is {}",
        rank, header.call.tag, header.payload_bytes, kept_count_, needed, limits::unexpected_bytes_max);
  Kept kept;
  kept.header = header;
  kept.data.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(header.payload_bytes)]);
  if (!kept.data)
    return peer_failure(ErrorCode::out_of_memory, peer,
                        "no memory for the {} bytes of a message of rank {} with tag {} that nobody has asked for yet",
                        header.payload_bytes, rank, header.call.tag);
  ++kept_count_, kept_bytes_ += header.payload_bytes;
  counters_.staging_bytes_peak = std::max(counters_.staging_bytes_peak, kept_bytes_);
  auto& line = source.kept[header.call.tag];
  line.push_back(std::move(kept));
  source.filling = &line.back();
  return {};
}

// The rest will never come.
void Receives::forget_partial(Source& source) {
  if (!source.filling) return;
  const FrameHeader header = source.filling->header;
  source.filling = nullptr;
  const auto line = source.kept.find(header.call.tag);
  line->second.pop_back();
  if (line->second.empty()) source.kept.erase(line);
  --kept_count_, kept_bytes_ -= header.payload_bytes;
}

Status Receives::find_everyone_gone() {
  if (any_waiting_ == 0) return {};
  Status lost;
  for (std::uint32_t rank = 0; rank < world_; ++rank) {
    if (rank == rank_) continue;
    const auto source = sources_.find(rank);
    if (source != sources_.end() && (source->second.taking || source->second.filling)) return {};
    const auto shown = transport_.peek({rank, Channel::point_to_point}, limits::frame_header_bytes);
    if (shown) return {};
    if (shown.status().code != ErrorCode::peer_lost) return shown.status();
    lost = shown.status();
  }
  lost.message = fmt::format("recv from any rank: all other ranks are gone ({})", lost.message);
  return lost;
}

void Receives::fail(const Status& cause) {
  for (auto& [rank, source] : sources_)
    if (source.taking) source.taking->fail(cause);
  for (auto& [key, line] : waiting_)
    for (Posted& posted : line) posted.operation->fail(cause);
  sources_.clear();
  waiting_.clear();
  posted_ = any_waiting_ = kept_count_ = kept_bytes_ = 0;
}

Status Receives::find_overdue(TimePoint now, std::optional<Deadline>& earliest) const {
  Status late;
  const auto look = [&](const Operation& operation, bool waits) {
    const Deadline deadline = operation.request().deadline;
    if (!deadline.passed(now)) earliest = earliest ? gradsync::earlier(*earliest, deadline) : deadline;
    else if (late.ok()) late = overdue(operation, waits);
  };
  for (const auto& [rank, source] : sources_)
    if (source.taking) look(*source.taking, false);
  for (const auto& [key, line] : waiting_)
    for (const Posted& posted : line) look(*posted.operation, true);
  return late;
}

Status Receives::overdue(const Operation& operation, bool waits) const {
  const Request& request = operation.request();
  const std::string what = fmt::format("{} ({}): deadline passed", operation.name(), describe(request.call));
  if (!waits)
    return peer_failure(ErrorCode::timeout, operation.execution().waits_for(), "{}, {}", what,
                        operation.execution().waits_in_words());
  std::uint64_t others = 0;
  for (const auto& [rank, source] : sources_)
    if (request.any_source || rank == request.schedule->recipe.root)
      for (const auto& [tag, line] : source.kept) others += line.size();
  const std::string kept =
      others == 0 ? "" : fmt::format("; {} with other tags {}", others, others > 1 ? "have" : "has");
  const int peer = request.any_source ? -1 : static_cast<int>(request.schedule->recipe.root);
  return peer_failure(ErrorCode::timeout, peer, "{}, waiting for {} (no message with tag {} has come{})", what,
                      peer < 0 ? "any rank" : transport_.name(request.schedule->recipe.root), request.call.tag, kept);
}

}  // namespace gradsync
