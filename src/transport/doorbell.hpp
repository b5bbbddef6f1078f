// The UNIX socket beside a ring of another process.
//
// Either side rings: one byte, for a side that sleeps. Either side also passes memory of its own, the writer what it lends, the reader what it offers
// for landing:
//
//   0x01                 wake up
//   0x02 u64 id + memfd  from now on this memory may be lent or offered under that number
//   0x03 u64 id          it will not be any more: unmap it
//
// Its end or reset means that the other side is gone. Without a socket (a rank's own ring) it neither rings nor breaks.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "transport/poller.hpp"

namespace gradsync {

// What becomes of the memory that the other side passes.
class MemoryTaker {
 public:
  virtual ~MemoryTaker() = default;
  virtual void take_memory(std::uint64_t id, Descriptor memory) = 0;
  virtual void drop_memory(std::uint64_t id) = 0;
};

class Doorbell final : public Watcher {
 public:
  // `taker` (borrowed, may be null) hears of passed memory; without one whatever the other side says is a ring.
  explicit Doorbell(Descriptor socket, MemoryTaker* taker = nullptr) : socket_(std::move(socket)), taker_(taker) {}

  Status watch(Poller& poller);
  void ring();
  // False if the socket has no room now: nothing was said.
  bool pass_memory(std::uint64_t id, int memory);
  bool pass_end_of_memory(std::uint64_t id);

  void on_events(std::uint32_t events) override;
  void hear() { on_events(0); }

  bool broken() const { return broken_; }
  std::string why() const { return error_ == 0 ? "its process or communicator ended" : errno_text(error_); }

 private:
  static constexpr std::size_t kRecordBytes = 9;
  void lose(int error) { broken_ = true, error_ = error; }
  bool say(std::uint8_t what, std::uint64_t id, int memory);
  void read(std::span<const std::byte> bytes);
  void obey();

  Descriptor socket_;
  MemoryTaker* taker_;
  bool broken_ = false;
  int error_ = 0;
  std::array<std::byte, kRecordBytes> record_{};
  std::size_t record_bytes_ = 0;
  std::deque<Descriptor> passed_;  // with records that are not complete yet
};

}  // namespace gradsync
