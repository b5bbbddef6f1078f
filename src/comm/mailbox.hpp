// What an endpoint has received for one communicator: streams that peers opened, and notices.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "comm/notice.hpp"
#include "transport/inbox.hpp"

namespace gradsync {

// Any thread puts, the communicator's thread takes. `descriptor` (an eventfd) is readable while something waits.
class MailQueue {
 public:
  explicit MailQueue(std::vector<std::uint32_t> world_ranks);
  void put(Arrival arrival);
  void put(Notice notice);
  bool take(Arrival& out);
  bool take(Notice& out);
  int descriptor() const { return event_.get(); }
  const std::vector<std::uint32_t>& world_ranks() const { return world_ranks_; }

 private:
  void signal();
  void settle();
  std::mutex mutex_;
  std::deque<Arrival> arrivals_;
  std::deque<Notice> notices_;
  Descriptor event_;
  std::vector<std::uint32_t> world_ranks_;
};

// Which communicators of this process listen, and what arrived for one that does not yet. Thread-safe.
class MailRoom {
 public:
  struct Key {
    std::uint64_t epoch = 0;
    std::uint32_t rank = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  std::shared_ptr<MailQueue> subscribe(Key key, std::vector<std::uint32_t> world_ranks);
  void unsubscribe(Key key);

  // Delivers or parks; false if there is no place for it any more (its communicator is gone, or too much is parked).
  bool deliver(Key key, Arrival arrival, TimePoint now);
  bool deliver(Key key, Notice notice, TimePoint now);
  // World rank `rank` is lost: every communicator that has it, now or later, gets a notice of peer_lost.
  void lose(std::uint32_t rank, const std::string& why);
  // Drops what has been parked for too long.
  void expire(TimePoint now);
  std::size_t parked() const;

 private:
  struct Parked {
    Key key;
    TimePoint until;
    Arrival arrival;  // without a socket: it is the notice that was parked
    Notice notice;
  };
  bool park(Key key, Arrival arrival, Notice notice, TimePoint now);
  static void tell_lost(MailQueue& queue, std::uint32_t rank, const std::string& why);

  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<MailQueue>> queues_;
  std::list<Parked> parked_;  // oldest first
  std::map<std::uint32_t, std::string> lost_;
  std::deque<Key> past_;  // the last communicators that left
};

// A communicator's letter box. Its end closes what was not taken, and what arrives later.
class Mailbox final : public Inbox {
 public:
  Mailbox(std::shared_ptr<MailRoom> room, MailRoom::Key key, std::vector<std::uint32_t> world_ranks)
      : room_(std::move(room)),
        key_(key),
        queue_(room_->subscribe(key, std::move(world_ranks))) {}
  ~Mailbox() override { room_->unsubscribe(key_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  bool take(Arrival& out) override { return queue_->take(out); }
  bool take_notice(Notice& out) { return queue_->take(out); }
  int descriptor() const override { return queue_->descriptor(); }

 private:
  std::shared_ptr<MailRoom> room_;
  MailRoom::Key key_;
  std::shared_ptr<MailQueue> queue_;
};

}  // namespace gradsync
