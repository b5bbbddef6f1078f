#include "c10d/completion_threads.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gradsync::pytorch {

struct CompletionThreads::State : std::enable_shared_from_this<State> {
  using Job = std::function<void()>;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Task> ordered;         // nobody waits for them yet
  bool ordered_has_thread = false;  // a thread waits for the one before
  std::deque<Job> jobs;             // one for each thread that has been woken
  std::size_t idle = 0;             // threads that sleep and have not been woken
  std::vector<std::thread> threads;
  bool stopping = false;

  bool start(Job job);
  void run(Job job);
  void serve_ordered();
};

// Holding the mutex.
bool CompletionThreads::State::start(Job job) {
  if (idle > 0) {
    --idle;
    jobs.push_back(std::move(job));
    changed.notify_one();
    return true;
  }
  if (stopping || threads.size() == kThreadsMax) return false;
  try {
    threads.emplace_back([self = shared_from_this(), first = std::move(job)] { self->run(first); });
  } catch (const std::system_error&) {  // no more threads: one that is there takes it later
    return false;
  }
  return true;
}

void CompletionThreads::State::run(Job job) {
  for (;;) {
    job();
    std::unique_lock lock(mutex);
    if (!ordered.empty() && !ordered_has_thread) {  // given while every thread was busy
      ordered_has_thread = true;
      job = [this] { serve_ordered(); };
      continue;
    }
    ++idle;
    changed.wait(lock, [this] { return !jobs.empty() || stopping; });
    if (jobs.empty()) return;
    job = std::move(jobs.front());
    jobs.pop_front();
  }
}

void CompletionThreads::State::serve_ordered() {
  std::unique_lock lock(mutex);
  for (bool relieved = false; !relieved;) {
    if (ordered.empty()) {
      ordered_has_thread = false;
      return;
    }
    const Task task = std::move(ordered.front());
    ordered.pop_front();
    lock.unlock();
    task.wait();
    lock.lock();
    if (ordered.empty()) {
      ordered_has_thread = false;
      relieved = true;
    } else {
      relieved = start([this] { serve_ordered(); });
    }
    lock.unlock();
    task.complete();
    lock.lock();
  }
}

CompletionThreads::CompletionThreads() : state_(std::make_shared<State>()) {}
CompletionThreads::~CompletionThreads() { stop(); }

bool CompletionThreads::in_order(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return false;
  state_->ordered.push_back(std::move(task));
  if (!state_->ordered_has_thread)
    state_->ordered_has_thread = state_->start([state = state_.get()] { state->serve_ordered(); });
  if (state_->ordered_has_thread || !state_->threads.empty()) return true;
  state_->ordered.pop_back();  // there is no thread and there can be none
  return false;
}

bool CompletionThreads::alone(Task task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return false;
  return state_->start([task = std::move(task)] {
    task.wait();
    task.complete();
  });
}

void CompletionThreads::stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    threads.swap(state_->threads);
  }
  state_->changed.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id()) thread.detach();
    else thread.join();
  }
}

}  // namespace gradsync::pytorch
