#include "comm/mailbox.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/limits.hpp"

namespace gradsync {
namespace {

// Streams and notices of members whose communicator has not been made here yet. Each holds a descriptor or two.
constexpr std::size_t kParkedMax = 8192;
// As long as an operation may wait: a rank that makes its communicator later than that finds its peers gone.
constexpr auto kParkedFor = limits::timeout_default;
constexpr std::size_t kPastMax = 4096;
constexpr std::size_t kNoticesMax = 4096;  // in one queue; the first ones count

}  // namespace

MailQueue::MailQueue(std::vector<std::uint32_t> world_ranks)
    : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      world_ranks_(std::move(world_ranks)) {}

void MailQueue::signal() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void MailQueue::settle() {
  if (!arrivals_.empty() || !notices_.empty()) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
}

void MailQueue::put(Arrival arrival) {
  const std::lock_guard lock(mutex_);
  arrivals_.push_back(std::move(arrival));
  signal();
}

void MailQueue::put(Notice notice) {
  const std::lock_guard lock(mutex_);
  if (notices_.size() < kNoticesMax) notices_.push_back(std::move(notice));
  signal();
}

bool MailQueue::take(Arrival& out) {
  const std::lock_guard lock(mutex_);
  if (arrivals_.empty()) return false;
  out = std::move(arrivals_.front());
  arrivals_.pop_front();
  settle();
  return true;
}

bool MailQueue::take(Notice& out) {
  const std::lock_guard lock(mutex_);
  if (notices_.empty()) return false;
  out = std::move(notices_.front());
  notices_.pop_front();
  settle();
  return true;
}

std::shared_ptr<MailQueue> MailRoom::subscribe(Key key, std::vector<std::uint32_t> world_ranks) {
  auto queue = std::make_shared<MailQueue>(std::move(world_ranks));
  const std::lock_guard lock(mutex_);
  const bool fresh = queues_.emplace(key, queue).second;
  GRADSYNC_CHECK(fresh && "one communicator for each epoch and rank");
  for (auto at = parked_.begin(); at != parked_.end();) {
    if (at->key != key) {
      ++at;
      continue;
    }
    if (at->arrival.socket) {
      if (at->arrival.from < queue->world_ranks().size()) queue->put(std::move(at->arrival));
    } else {
      queue->put(std::move(at->notice));
    }
    at = parked_.erase(at);
  }
  for (const auto& [rank, why] : lost_) tell_lost(*queue, rank, why);
  return queue;
}

void MailRoom::unsubscribe(Key key) {
  const std::lock_guard lock(mutex_);
  queues_.erase(key);
  past_.push_back(key);
  if (past_.size() > kPastMax) past_.pop_front();
}

bool MailRoom::deliver(Key key, Arrival arrival, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (const auto found = queues_.find(key); found != queues_.end()) {
    if (arrival.from >= found->second->world_ranks().size()) return false;
    found->second->put(std::move(arrival));
    return true;
  }
  return park(key, std::move(arrival), {}, now);
}

bool MailRoom::deliver(Key key, Notice notice, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (const auto found = queues_.find(key); found != queues_.end()) {
    found->second->put(std::move(notice));
    return true;
  }
  return park(key, {}, std::move(notice), now);
}

bool MailRoom::park(Key key, Arrival arrival, Notice notice, TimePoint now) {
  if (parked_.size() >= kParkedMax || std::find(past_.begin(), past_.end(), key) != past_.end()) return false;
  parked_.push_back({key, now + kParkedFor, std::move(arrival), std::move(notice)});
  return true;
}

void MailRoom::tell_lost(MailQueue& queue, std::uint32_t rank, const std::string& why) {
  const auto& ranks = queue.world_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return;
  const auto here = static_cast<std::uint32_t>(found - ranks.begin());
  queue.put(Notice{here, peer_failure(ErrorCode::peer_lost, static_cast<int>(here), "rank {} is gone: {}", here, why)});
}

void MailRoom::lose(std::uint32_t rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!lost_.try_emplace(rank, why).second) return;
  for (auto& [key, queue] : queues_) tell_lost(*queue, rank, why);
}

void MailRoom::expire(TimePoint now) {
  const std::lock_guard lock(mutex_);
  while (!parked_.empty() && parked_.front().until <= now) parked_.pop_front();
}

std::size_t MailRoom::parked() const {
  const std::lock_guard lock(mutex_);
  return parked_.size();
}

}  // namespace gradsync
