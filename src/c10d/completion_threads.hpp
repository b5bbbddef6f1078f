// Threads that wait for works whose futures somebody holds, and run the callbacks of those futures.
//
// Collectives end in their order, so one thread waits for the oldest; before it runs callbacks another takes its place, because a
// callback may itself wait for a later collective. Sends and receives end in any order: each has a thread while it is awaited.
// Threads are started when needed, are kept, and are ended by `stop`.
#pragma once

#include <functional>
#include <memory>

namespace gradsync::pytorch {

class CompletionThreads {
 public:
  static constexpr std::size_t kThreadsMax = 64;

  // `wait` returns when the work has ended, which its deadline bounds; `complete` runs its callbacks.
  struct Task {
    std::function<void()> wait, complete;
  };

  CompletionThreads();
  ~CompletionThreads();  // stop()
  CompletionThreads(const CompletionThreads&) = delete;
  CompletionThreads& operator=(const CompletionThreads&) = delete;

  // After those that were given before. False, and nothing is done, after stop().
  bool in_order(Task task);
  // By itself. False, and nothing is done, after stop() and while all threads are in use.
  bool alone(Task task);

  // Ends the threads when the tasks they have are done: the works must have ended or be about to. Any thread, one of these
  // included, which then is left to end by itself.
  void stop();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace gradsync::pytorch
