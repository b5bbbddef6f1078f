// Landing: the sender writes the payload of a message where the receiver wants it, in registered memory that both map.
//
// The reverse of a loan, beside the same ring. Before a message's header has come the receiver offers a place for it: whole pages
// of its memory, which take a middle part of the payload; what lies before and after comes through the ring, as the header does.
// An offer is for one message only: the one whose header begins at a given position of the stream and equals what the receiver
// expects, which a fingerprint says. The sender accepts before it sends that header, or never. Then it writes, as far as the
// receiver has allowed so far, and publishes how far it has come. Where the place is itself what the receiver sends to this
// sender, as in an all-reduce in place, the sender knows sooner than the receiver what it has read there: a byte may be written
// once the sender has consumed the reverse stream up to that byte.
//
// Taking back. The sender announces each write and then looks whether the offer still stands; the receiver withdraws and
// then looks whether a write is announced. So at most one write is under way after a withdrawal, and the receiver can wait for its
// end. Where none comes (the sender's process is stopped) the receiver puts other pages under its memory: see
// Pages::replace.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "transport/ring.hpp"

namespace gradsync {

// In the ring's header page, behind the ring's own.
inline constexpr std::size_t kLandingHeaderOffset = 2048;

struct LandingHeader {
  // By the receiver. Of the latest offer; a sequence lock, odd while the fields change.
  alignas(64) std::atomic<std::uint64_t> offers;
  std::atomic<std::uint64_t> position, fingerprint, memory, offset, skip, bytes, after;
  alignas(64) std::atomic<std::uint64_t> allowed;
  std::atomic<std::uint32_t> withdrawn;
  // By the sender.
  alignas(64) std::atomic<std::uint64_t> accepted;  // `offers` of the latest one that was
  alignas(64) std::atomic<std::uint64_t> landed;
  std::atomic<std::uint32_t> writing;
};
static_assert(sizeof(RingHeader) <= kLandingHeaderOffset);
static_assert(kLandingHeaderOffset + sizeof(LandingHeader) <= kRingHeaderBytes);

// The part of `bytes` that is whole pages: only those can be replaced.
std::span<std::byte> whole_pages(std::span<std::byte> bytes);
// The whole pages that `bytes` lie in.
std::span<std::byte> pages_around(std::span<std::byte> bytes);

// What is offered: `bytes` at `offset` of the receiver's memory number `memory` for the payload from byte `skip` on.
struct LandingPlace {
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::uint64_t position = 0, fingerprint = 0;
  std::uint64_t memory = 0, offset = 0;
  std::uint64_t skip = 0, bytes = 0;
  std::uint64_t after =
      kNever;  // byte i may be written once the sender has consumed its stream from the receiver past `after` + i
  std::uint64_t number = 0;  // filled by the sender's side: which offer it is
};

// The receiver's side. One offer at a time.
class LandingReceiver {
 public:
  LandingReceiver() = default;
  explicit LandingReceiver(std::span<std::byte> ring);

  bool open() const { return open_; }
  void offer(const LandingPlace& place);
  // The sender may write the first `bytes` of the place; it never shrinks. True if that is news.
  bool allow(std::uint64_t bytes);
  // After the message's header has come: whether its middle lands.
  bool accepted() const;
  // Bytes that have landed. protocol if the sender's count is impossible.
  Result<std::uint64_t> landed();
  // The message has come, or its header came and the offer was not accepted.
  void end() { open_ = false; }
  // Takes the offer back. False: by `deadline` a write was still under way, and `gone` (asked now and then) was false.
  template <class Gone>
  [[nodiscard]] bool withdraw(Deadline deadline, Gone gone);

  // Whether bytes landed, or an offer was accepted, since the last call of this.
  bool changed();

 private:
  bool still_writing() const;
  static void give_way();

  LandingHeader* header_ = nullptr;
  std::uint64_t offers_ = 0, bytes_ = 0, allowed_ = 0, landed_ = 0, looked_ = 0;
  bool open_ = false;
};

// The sender's.
class LandingSender {
 public:
  LandingSender() = default;
  // Makes the part of the header page in a new ring's memory.
  explicit LandingSender(std::span<std::byte> ring);

  // The offer for the message whose header will begin at `position`, if there is one; to be accepted before that is sent.
  std::optional<LandingPlace> offered(std::uint64_t position, std::uint64_t fingerprint) const;
  void accept(const LandingPlace& place, std::byte* memory);
  bool landing() const { return memory_ != nullptr; }
  // The place of the next bytes, at most `wanted` and limits::piece_bytes, as far as it may be written now; empty if not at all.
  // peer_lost if the offer was withdrawn. `consumed`: of the reverse stream; `ahead`: bytes of it that are read in step with this
  // write, each before its like is written, and then consumed. The write is announced until end_write, which says
  // how many of the bytes were written, and must follow soon.
  Result<std::span<std::byte>> begin_write(std::uint64_t wanted, std::uint64_t consumed, std::uint64_t ahead);
  void end_write(std::size_t count);
  // Whether more was allowed, or the offer withdrawn, since the last write or call of this.
  bool changed();

 private:
  LandingHeader* header_ = nullptr;
  std::byte* memory_ = nullptr;  // of the accepted place, until it is full
  std::uint64_t bytes_ = 0, after_ = LandingPlace::kNever, landed_ = 0, looked_ = 0;
};

template <class Gone>
bool LandingReceiver::withdraw(Deadline deadline, Gone gone) {
  if (!open_) return true;
  open_ = false;
  header_->withdrawn.store(1, std::memory_order_seq_cst);
  while (still_writing()) {
    if (gone()) return true;
    if (deadline.passed(std::chrono::steady_clock::now())) return false;
    give_way();
  }
  return true;
}

}  // namespace gradsync
