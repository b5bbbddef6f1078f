#include "c10d/task.hpp"

namespace gradsync::pytorch {
namespace {

Status outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) { return error.status(); } catch (const std::exception& error) {
    return {ErrorCode::internal, -1, error.what()};
  }
}

const Status kClosed{ErrorCode::closed, -1, "the process group was destroyed"};

}  // namespace

bool Task::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Task::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

bool Task::wait_for(std::chrono::nanoseconds duration) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, duration, [this] { return done_; });
}

Status Task::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void Task::end(Status status) {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    status_ = std::move(status);
  }
  changed_.notify_all();
}

std::shared_ptr<Task> TaskThread::run(std::function<void()> body) {
  auto task = std::make_shared<Task>();
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) throw Error(kClosed);
    if (jobs_.size() >= kTasksMax)
      throw Error(Status{ErrorCode::out_of_range, -1, "more than 65536 sparse all-reduces are under way"});
    jobs_.push_back({task, std::move(body)});
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_one();
  return task;
}

void TaskThread::loop() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.task->end(outcome_of(job.body));
  }
}

void TaskThread::stop() {
  std::deque<Job> left;
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(jobs_);
    thread.swap(thread_);
  }
  changed_.notify_all();
  for (const Job& job : left) job.task->end(kClosed);
  if (thread.joinable()) thread.join();
}

}  // namespace gradsync::pytorch
