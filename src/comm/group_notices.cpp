// How a group comes by its verdict: what ends here, what peers and the launcher tell, and what is told on.
#include <algorithm>

#include "comm/group.hpp"

namespace gradsync {
namespace {

constexpr auto kSuspicion = std::chrono::milliseconds(100);         // from "rank r is gone" to a verdict
constexpr auto kTellWaitingAfter = std::chrono::milliseconds(200);  // of standstill; doubled each time
constexpr auto kTellWaitingPauseMax = std::chrono::seconds(5);      // what was heard may be as old
constexpr auto kTellWaitingTimeout = std::chrono::milliseconds(50);
constexpr std::uint32_t kEveryoneIsTold = 64;  // above, verdicts spread along rank ± 2^k

}  // namespace

// A needed stream has ended. Its owner may have left because of a failure elsewhere: the launcher's word and the peers'
// verdicts say so, now or within the time of grace.
void Group::suspect_ended_streams() {
  if (!engine_->failure_cause().ok() || (suspected_ && suspected_->stream_ended)) return;
  const TimePoint now = std::chrono::steady_clock::now();
  take_notices(now);
  if (!engine_->failure_cause().ok()) return;
  if (suspected_) return fail_for_loss(suspected_->verdict);
  suspected_ = Suspected{now + kSuspicion, engine_->suspicion(), true};
}

// The launcher knows that a process is gone, and a stream that was needed has ended: no need to wait any longer.
void Group::fail_for_loss(Status verdict) {
  verdict.message += fmt::format(" ({})", engine_->suspicion().message);
  engine_->fail(verdict);
}

// Two ranks that wait for each other in different calls send nothing that could tell them so.
void Group::say_where_we_wait(TimePoint now) {
  const std::optional<Engine::Waiting> waiting = notifier_ ? engine_->waiting() : std::nullopt;
  if (!waiting || !standstill_.tell_at || standstill_.movements != engine_->movements()) {
    standstill_ = {engine_->movements(), std::nullopt, kTellWaitingAfter};
    if (waiting) standstill_.tell_at = now + kTellWaitingAfter;
    return;
  }
  if (now < *standstill_.tell_at) return;
  standstill_.pause = std::min<Nanoseconds>(2 * standstill_.pause, kTellWaitingPauseMax);
  standstill_.tell_at = now + standstill_.pause;
  tell_where_we_wait(waiting->peer, *waiting, {});
}

void Group::tell_where_we_wait(std::uint32_t to, const Engine::Waiting& waiting, std::vector<std::uint32_t> chain) {
  const FrameBytes header = encode(waiting.header);
  const std::string text(reinterpret_cast<const char*>(header.data()), header.size());
  notifier_->tell({&to, 1}, waiting_notice({text, std::move(chain)}), Deadline::after(kTellWaitingTimeout));
}

// A peer waits for us, and we may have called something else; or it answers that it waits too, and for whom.
void Group::hear_waiting(const Notice& notice) {
  const auto word = waiting_word(notice.status);
  if (!word) return;
  const auto header = decode_frame(std::as_bytes(std::span(word->frame_header)));
  if (!header || header->epoch != epoch_) return;
  engine_->hear_waiting(notice.from, *header);
  const std::optional<Engine::Waiting> mine = engine_->waiting();
  if (!mine || mine->header.sequence != header->sequence) return;
  if (word->chain.empty()) {
    if (mine->peer != notice.from)
      tell_where_we_wait(notice.from, *mine, engine_->chain_of(header->sequence, mine->peer));
    return;
  }
  std::vector<std::uint32_t> chain{notice.from};
  for (const std::uint32_t rank : word->chain) {  // a circle ends where it closes
    if (rank >= size_ || rank == rank_ || std::find(chain.begin(), chain.end(), rank) != chain.end()) break;
    chain.push_back(rank);
  }
  if (mine->peer == notice.from) engine_->hear_chain(header->sequence, std::move(chain));
}

// A deadline that passed elsewhere says nothing of what this rank waits for.
std::string Group::told(const Notice& notice) const {
  const auto mine = notice.status.code == ErrorCode::timeout ? engine_->waiting() : std::nullopt;
  if (!mine) return fmt::format("{} (told by rank {})", notice.status.message, notice.from);
  const FrameHeader& header = mine->header;
  return fmt::format("{} ({}): waiting for {}; told by rank {}: {}", operation_name(header.call, header.sequence),
                     describe(header.call), engine_->transport().name(mine->peer), notice.from, notice.status.message);
}

void Group::take_notices(TimePoint now) {
  if (!notifier_ || !engine_->failure_cause().ok()) return;
  Notice notice;
  while (notifier_->take(notice)) {
    Status verdict = notice.status;
    if (is_waiting_notice(verdict)) {
      hear_waiting(notice);
      if (!engine_->failure_cause().ok()) return;  // the caller tells the others
      continue;
    }
    // The launcher's word that a process is gone: what is under way may still end well.
    if (verdict.code == ErrorCode::peer_lost && verdict.peer == static_cast<int>(notice.from)) {
      if (!engine_->suspicion().ok()) return fail_for_loss(verdict);
      if (!suspected_) suspected_ = Suspected{now + kSuspicion, verdict, false};
      continue;
    }
    verdict.message = told(notice);
    engine_->fail(verdict);
    record_failure(notice.status, size_ > kEveryoneIsTold);
    return;
  }
}

// Keeps the first verdict and, if asked, tells the peers. Holding the baton.
void Group::record_failure(const Status& verdict, bool tell) {
  std::shared_ptr<Notifier> notifier;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = engine_->failure_cause().ok() ? verdict : engine_->failure_cause();
    notifier = notifier_;
  }
  changed_.notify_all();
  if (tell && notifier && verdict.code != ErrorCode::closed)
    notifier->tell(told_by_me(), verdict, Deadline::after(limits::notice_timeout));
}

std::vector<std::uint32_t> Group::told_by_me() const {
  std::vector<std::uint32_t> ranks;
  const auto add = [&](std::uint32_t rank) {
    if (rank != rank_ && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  };
  if (size_ <= kEveryoneIsTold)
    for (std::uint32_t rank = 0; rank < size_; ++rank) add(rank);
  else
    for (std::uint32_t distance = 1; distance < size_; distance *= 2) {
      add((rank_ + distance) % size_);
      add((rank_ + size_ - distance) % size_);
    }
  return ranks;
}

}  // namespace gradsync
