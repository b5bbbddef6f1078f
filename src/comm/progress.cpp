#include "comm/progress.hpp"

#include <poll.h>

#include <algorithm>

#include "base/thread.hpp"

namespace gradsync {
namespace {

constexpr int kPassesPerTurn = 64;
constexpr auto kNapMax = std::chrono::milliseconds(500);

}  // namespace

ProgressThread::~ProgressThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  wake_.signal();
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::serve(std::shared_ptr<Group> group) {
  {
    std::lock_guard lock(mutex_);
    group->mark_served();
    if (std::find(groups_.begin(), groups_.end(), group) == groups_.end()) groups_.push_back(std::move(group));
    if (!thread_.joinable()) thread_ = start_without_signals([this] { run(); });
  }
  work_.notify_all();
  wake_.signal();
}

void ProgressThread::forget(const std::shared_ptr<Group>& group) {
  {
    std::lock_guard lock(mutex_);
    if (std::erase(groups_, group) == 0) return;
  }
  wake_.signal();  // it may sleep on the group's descriptors
}

// Sleeps once there is nothing to do. The other threads of this process are computing, or they would drive themselves, and a
// thread that gives way to one that computes gets its core back after a whole time slice. One that sleeps runs as soon as a
// peer wakes it.
void ProgressThread::run() {
  while (true) {
    Groups groups;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] { return ending_ || !groups_.empty(); });
      if (ending_) return;
      groups = groups_;
    }
    if (!turn(groups)) sleep(groups);
  }
}

bool ProgressThread::turn(const Groups& groups) {
  bool more = false;
  for (const auto& group : groups) {
    if (group->closed()) forget(group);
    if (!group->try_take()) continue;
    int passes = 0;
    while (passes < kPassesPerTurn && group->background_pass()) ++passes;
    more |= passes == kPassesPerTurn;
    if (group->background_idle()) drop_if_idle(group);
    group->release();
  }
  return more;
}

// Holding the group's baton: a submission that comes now finds the list locked and puts the group back.
void ProgressThread::drop_if_idle(const std::shared_ptr<Group>& group) {
  std::lock_guard lock(mutex_);
  if (!group->background_idle()) return;
  group->mark_served(false);
  std::erase(groups_, group);
}

void ProgressThread::sleep(const Groups& groups) {
  std::vector<pollfd> watched = {{wake_.descriptor(), POLLIN, 0}};
  struct Taken {
    std::shared_ptr<Group> group;
    std::size_t wake;  // where its own is among the watched
  };
  std::vector<Taken> taken;
  TimePoint wake_at = std::chrono::steady_clock::now() + kNapMax;
  bool quiet = true;
  for (const auto& group : groups) {
    if (!group->try_take()) continue;
    taken.push_back({group, watched.size()});
    quiet = group->begin_sleep(watched) && quiet;
    if (const auto next = group->background_deadline()) wake_at = std::min(wake_at, next->when());
  }
  if (quiet) ::poll(watched.data(), watched.size(), Deadline::at(wake_at).poll_milliseconds());
  const auto woken = [&](std::size_t i) { return !quiet || watched[i].revents != 0; };
  for (const auto& [group, wake] : taken) {
    group->end_sleep(woken(wake));
    group->release();
  }
  if (woken(0)) wake_.drain();
}

}  // namespace gradsync
