// The endpoint's thread: sockets that have been accepted and have not said yet what they want.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "comm/endpoint.hpp"
#include "comm/handshake.hpp"

namespace gradsync {

class Endpoint::Acceptor {
 public:
  static Result<std::shared_ptr<Acceptor>> create(Descriptor tcp, Descriptor local, std::shared_ptr<MailRoom> room,
                                                  std::shared_ptr<std::atomic<std::uint64_t>> strangers);

  void serve();  // the thread's body; returns after stop()

  // Any thread.
  void stop();
  void set_job(std::uint64_t job) { job_.store(job); }
  void watch(std::unique_ptr<LossWatch> watch);
  void abandon();  // in a forked child: forget the watch without a goodbye

 private:
  // One that has not finished its handshake. Its first bytes are read up to the handshake's end and not beyond.
  struct Pending {
    std::uint64_t id = 0;
    Descriptor socket;
    bool local = false;
    Deadline until = Deadline::after(Nanoseconds(0));
    std::array<std::byte, kHelloBytes + kHelloPayloadMax> bytes;
    std::size_t got = 0, wanted = kHelloBytes;
    Hello hello;  // valid once got >= kHelloBytes
    Descriptor memory;
  };
  using Pendings = std::list<std::unique_ptr<Pending>>;
  enum class Progress { wait, done, stranger };

  Acceptor() = default;
  void wait_and_handle();
  void accept_all(const Descriptor& listener, bool local);
  void drop_oldest();
  void advance(std::uint64_t id);
  Progress read_more(Pending& pending);
  Progress finish(Pending& pending);
  Progress finish_stream(Pending& pending);
  Progress finish_notice(Pending& pending);
  void remove(Pendings::iterator at, bool stranger);
  void expire(TimePoint now);
  void poll_watch();
  bool add_to_epoll(int descriptor, std::uint64_t id);

  Descriptor tcp_, local_, epoll_, wake_;
  std::shared_ptr<MailRoom> room_;
  std::shared_ptr<std::atomic<std::uint64_t>> strangers_;
  std::atomic<std::uint64_t> job_{0};
  std::atomic<bool> stopping_{false};

  Pendings pending_;  // oldest first, so also earliest deadline first
  std::unordered_map<std::uint64_t, Pendings::iterator> by_id_;
  std::uint64_t next_id_ = 16;     // below: the fixed descriptors
  bool accepting_paused_ = false;  // no descriptor was free

  std::mutex watch_mutex_;
  std::unique_ptr<LossWatch> watch_;
  bool watch_new_ = false;
};

}  // namespace gradsync
