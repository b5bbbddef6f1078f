// The one background thread that drives asynchronous operations nobody waits for.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/group.hpp"

namespace gradsync {

class ProgressThread {
 public:
  ProgressThread() = default;
  ~ProgressThread();  // ends and joins it; what is under way stays with its groups
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // The group has something under way. Starts the thread at the first call. Any thread.
  void serve(std::shared_ptr<Group> group);
  // The group was closed: lets go of it. Any thread.
  void forget(const std::shared_ptr<Group>& group);
  // A thread that drove a group has left work behind.
  void poke() { wake_.signal(); }

 private:
  using Groups = std::vector<std::shared_ptr<Group>>;
  void run();
  bool turn(const Groups& groups);  // true if there may be more to do
  void sleep(const Groups& groups);
  void drop_if_idle(const std::shared_ptr<Group>& group);

  Wake wake_;
  std::mutex mutex_;
  std::condition_variable work_;
  Groups groups_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace gradsync
