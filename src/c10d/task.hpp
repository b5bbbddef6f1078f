// A call that is more than one operation of the engine, made on a thread of its own, and that thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "gradsync/error.hpp"

namespace gradsync::pytorch {

class Task {
 public:
  bool done() const;
  void wait() const;  // what it does has deadlines
  bool wait_for(std::chrono::nanoseconds duration) const;
  Status status() const;
  void end(Status status);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  Status status_;
};

// Runs what it is given, one after another. The thread begins with the first.
class TaskThread {
 public:
  static constexpr std::size_t kTasksMax = 65536;

  TaskThread() = default;
  ~TaskThread() { stop(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // What `body` throws ends the task. Throws Error(out_of_range) beyond kTasksMax and Error(closed) after stop().
  std::shared_ptr<Task> run(std::function<void()> body);
  // Ends what has not begun with `closed`, and returns when what has begun is done.
  void stop();

 private:
  struct Job {
    std::shared_ptr<Task> task;
    std::function<void()> body;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::thread thread_;
  bool stopping_ = false;
};

}  // namespace gradsync::pytorch
