// The descriptors of one transport, in one epoll set that can itself be slept on.
//
// Sockets are watched edge-triggered: what a socket has to say is said once, so bytes that nobody wants yet do not keep
// the thread awake. Each watcher remembers what it was told.
#pragma once

#include <cstdint>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace gradsync {

class Watcher {
 public:
  virtual ~Watcher() = default;
  // `events` as of epoll_wait. Neither adds nor destroys watchers of sockets.
  virtual void on_events(std::uint32_t events) = 0;
};

class Poller {
 public:
  static Result<Poller> create();

  // Watches `socket` until it is closed; `watcher` must live as long. `events` as of epoll_ctl.
  Status watch(int socket, std::uint32_t events, Watcher& watcher);
  int descriptor() const { return set_.get(); }

  // Tells the watchers what is new, without waiting. One system call.
  void collect();
  // The same once in a while: for polling loops in which nothing moves, so that a lost peer is noticed.
  void collect_sometimes() {
    if (++idle_ % kIdlePolls == 0) collect();
  }
  // How often `collect` has run, and how often it had news.
  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t news() const { return news_; }

  // Whether the caller is the only one that polls: it was also the last that asked.
  bool alone(const void* caller) {
    const bool same = last_ == caller;
    last_ = caller;
    return same;
  }

 private:
  static constexpr std::uint32_t kIdlePolls = 256;
  Descriptor set_;
  const void* last_ = nullptr;
  std::uint64_t rounds_ = 0, news_ = 0;
  std::uint32_t idle_ = 0;
};

}  // namespace gradsync
