// What the calls of one process group share: the communicator, the works under way, and the threads that complete futures.
// A work may outlive its process group; the session is shared by both. In a forked child it refuses every use, and is left
// alone: what belongs to the parent's threads and sockets is not touched.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "c10d/completion_threads.hpp"
#include "c10d/task.hpp"
#include "c10d/work.hpp"

namespace gradsync::pytorch {

class Session : public std::enable_shared_from_this<Session> {
 public:
  struct Setup {
    c10::intrusive_ptr<::c10d::Store> store;
    int rank = 0, size = 1;
    std::chrono::milliseconds timeout{0}, start_timeout{0};
    std::string place = {};      // in the store
    std::string agreement = {};  // what all ranks must come for
  };
  // Joins, blocking until all ranks are there. Throws Error.
  explicit Session(Setup setup);
  ~Session();

  int rank() const { return setup_.rank; }
  int size() const { return setup_.size; }
  std::chrono::milliseconds timeout() const { return timeout_; }  // of calls that name none
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  const c10::intrusive_ptr<::c10d::Store>& store() const { return setup_.store; }

  // Both throw Error(closed) in a forked child, and the first after the end, with the prefix.
  Communicator& comm();
  void check_process() const;
  // For calls that run beside the others: a communicator of the same ranks with an order of its own, made when first needed.
  Communicator& side_comm();
  TaskThread& side_tasks();
  CompletionThreads& completion_threads() { return *completion_threads_; }

  // A work that is under way, and what it uses, stay alive though nobody holds them.
  c10::intrusive_ptr<::c10d::Work> keep(GroupWork::Plan plan);
  c10::intrusive_ptr<GroupWork> forget(const GroupWork* work);
  // Concludes those that have ended unnoticed.
  void sweep();

  std::string prefix() const;  // "gradsync rank 1 of 4"
  void abort(const std::string& why);
  Status comm_status();
  // Called once, before the group is aborted or the first failure is told.
  void set_failure_hooks(std::vector<std::function<void()>> hooks);
  void failing();
  // A call has told its caller so.
  void note_failure(ErrorCode code);
  // After the end, once: that ranks called different things, if no call has said so; else empty.
  std::string untold_mismatch();
  // Ends everything: works under way with `closed`, the threads, the communicators. Any thread, idempotent, local.
  void shutdown();

 private:
  std::vector<c10::intrusive_ptr<GroupWork>> ended_works();

  const Setup setup_;
  const pid_t owner_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<bool> ended_{false}, mismatch_told_{false};
  // Pointers, so that a forked child can leave them alone.
  std::unique_ptr<Communicator> comm_, side_comm_;
  std::unique_ptr<TaskThread> side_tasks_;
  std::unique_ptr<CompletionThreads> completion_threads_;

  std::mutex mutex_;  // guards what follows, and the making of what is made when needed
  std::unordered_map<const GroupWork*, c10::intrusive_ptr<GroupWork>> works_;
  std::size_t sweep_at_;
  std::vector<std::function<void()>> failure_hooks_;
};

}  // namespace gradsync::pytorch
