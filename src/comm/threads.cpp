#include "comm/threads.hpp"

#include <deque>
#include <map>
#include <mutex>

#include "transport/loopback.hpp"

namespace gradsync {
namespace {

// The notices of one group: a queue and an eventfd for each member.
class Board {
 public:
  explicit Board(std::size_t size) : slots_(size) {}

  struct Slot {
    std::mutex mutex;
    std::deque<Notice> waiting;
    Wake wake;
  };
  Slot& slot(std::uint32_t rank) { return slots_[rank]; }

 private:
  std::deque<Slot> slots_;
};

class BoardNotifier final : public Notifier {
 public:
  BoardNotifier(std::shared_ptr<Board> board, std::uint32_t me) : board_(std::move(board)), me_(me) {}

  bool take(Notice& out) override {
    Board::Slot& slot = board_->slot(me_);
    std::lock_guard lock(slot.mutex);
    if (slot.waiting.empty()) return false;
    out = std::move(slot.waiting.front());
    slot.waiting.pop_front();
    if (slot.waiting.empty()) slot.wake.drain();
    return true;
  }
  int descriptor() const override { return board_->slot(me_).wake.descriptor(); }
  void tell(std::span<const std::uint32_t> ranks, const Status& verdict, Deadline) override {
    for (std::uint32_t rank : ranks) {
      Board::Slot& slot = board_->slot(rank);
      std::lock_guard lock(slot.mutex);
      if (slot.waiting.size() >= kWaitingMax) continue;  // it has enough reasons to fail
      slot.waiting.push_back({me_, verdict});
      slot.wake.signal();
    }
  }

 private:
  static constexpr std::size_t kWaitingMax = 16;
  std::shared_ptr<Board> board_;
  std::uint32_t me_;
};

}  // namespace

class ThreadWorld {
 public:
  ThreadWorld(std::uint32_t size, std::size_t ring_bytes) : size_(size), ring_bytes_(ring_bytes), hosts_(size, 0) {}

  struct Meeting {
    std::shared_ptr<LoopbackFabric> fabric;
    std::shared_ptr<Board> board;
  };
  // The first member to come makes it; it lives until all have come and the last has left, so that what an early member
  // sent before it left is there for a late one.
  Meeting meet(std::uint64_t epoch, std::uint32_t size) {
    std::lock_guard lock(mutex_);
    Kept& kept = meetings_[epoch];
    if (kept.come == 0) kept.meeting = {make_loopback_fabric(size, ring_bytes_), std::make_shared<Board>(size)};
    Meeting meeting = kept.meeting;
    if (++kept.come == size) meetings_.erase(epoch);
    return meeting;
  }
  std::uint32_t size() const { return size_; }
  const std::vector<std::uint32_t>& hosts() const { return hosts_; }

 private:
  struct Kept {
    Meeting meeting;
    std::uint32_t come = 0;
  };
  const std::uint32_t size_;
  const std::size_t ring_bytes_;
  const std::vector<std::uint32_t> hosts_;
  std::mutex mutex_;
  std::map<std::uint64_t, Kept> meetings_;
};

namespace {

class ThreadSite final : public Site {
 public:
  explicit ThreadSite(std::shared_ptr<ThreadWorld> world) : world_(std::move(world)) {}

  Result<Line> open(std::uint64_t epoch, const std::vector<std::uint32_t>& members, std::uint32_t me) override {
    ThreadWorld::Meeting meeting = world_->meet(epoch, static_cast<std::uint32_t>(members.size()));
    Line line;
    line.notifier = std::make_unique<BoardNotifier>(meeting.board, me);
    line.transport = loopback_transport(std::move(meeting.fabric), me, shared_pages());
    return line;
  }
  const std::vector<std::uint32_t>& hosts() const override { return world_->hosts(); }
  std::string describe(std::uint32_t job_rank) const override { return fmt::format("rank {} (thread)", job_rank); }
  TransportKind kind() const override { return TransportKind::loopback; }

 private:
  std::shared_ptr<ThreadWorld> world_;
};

}  // namespace

std::shared_ptr<ThreadWorld> make_thread_world(std::uint32_t size, std::size_t ring_bytes) {
  return std::make_shared<ThreadWorld>(size, ring_bytes);
}

std::unique_ptr<Site> make_thread_site(std::shared_ptr<ThreadWorld> world, std::uint32_t) {
  return std::make_unique<ThreadSite>(std::move(world));
}

}  // namespace gradsync
