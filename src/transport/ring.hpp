// A ring of bytes in plain memory with one writer and one reader, threads or processes.
//
//   | header, 4096 bytes | capacity bytes |
//
// `head` counts the bytes ever written, `tail` the bytes ever released by the reader; both only grow. Each side keeps its
// own count privately and believes the other's only after checking it against the capacity, so a hostile or crashed
// peer can make an operation fail (protocol) but never makes us touch memory outside the ring. The bytes themselves may
// change under the reader's eyes if the writer is hostile: copy what is to be checked before checking it.
//
// Lending. Instead of copying bytes into the ring, the writer may lend them: it says where they lie in memory that both can
// read, and the reader reads them there. A loan follows the bytes that were published before it, and the writer publishes
// nothing more until all of it is read. `loan_ready` and `loan_read` count the bytes of all loans ever. The reader may
// refuse: then that loan never was, and no other comes. The writer may withdraw, after which the stream is of no use: who
// has read first publishes how far and then looks whether what it read still counted.
//
// Sleeping. A side that wants to sleep sets its flag and then looks at the other's count; the other publishes its count and
// then looks at the flag. All four are sequentially consistent, so at least one of them sees the other: no lost wake-up.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/status.hpp"
#include "transport/pieces.hpp"

namespace gradsync {

inline constexpr std::size_t kRingHeaderBytes = 4096;
inline constexpr std::size_t kRingBytesMin = 64, kRingBytesMax = std::size_t{1} << 30;
// A long message is published in steps of this, so that the reader starts before the writer has ended.
inline constexpr std::size_t kRingPublishBytes = 16u << 10;
// The most that RingReader::peek can be asked to show across the ring's end.
inline constexpr std::size_t kPeekBytes = 64;

inline constexpr bool ring_capacity_valid(std::size_t capacity) {
  return capacity >= kRingBytesMin && capacity <= kRingBytesMax && capacity % 64 == 0;
}

struct RingHeader {
  std::atomic<std::uint64_t> magic;  // kRingMagic, written last
  std::atomic<std::uint64_t> capacity;
  alignas(64) std::atomic<std::uint64_t> head;
  alignas(64) std::atomic<std::uint64_t> tail;
  alignas(64) std::atomic<std::uint32_t> reader_asleep;
  alignas(64) std::atomic<std::uint32_t> writer_asleep;
  // Of the latest loan, valid for whoever sees `loans` change.
  alignas(64) std::atomic<std::uint64_t> loans;  // made so far
  std::atomic<std::uint64_t> loan_memory, loan_offset, loan_bytes;
  alignas(64) std::atomic<std::uint64_t> loan_ready;
  std::atomic<std::uint32_t> loan_withdrawn;
  alignas(64) std::atomic<std::uint64_t> loan_read;
  std::atomic<std::uint32_t> loans_refused;
};
inline constexpr std::uint64_t kRingMagic = 0x0003'676e'6972'6773;  // "gsring", version 3
static_assert(sizeof(RingHeader) <= kRingHeaderBytes && offsetof(RingHeader, tail) == 128);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Where lent bytes lie: in which memory, as both sides number it, and where in it.
struct Loan {
  std::uint64_t memory = 0, offset = 0, bytes = 0;
};

class RingWriter {
 public:
  RingWriter() = default;
  // Makes `memory` (64-byte aligned, zeroed, kRingHeaderBytes + capacity bytes) an empty ring.
  explicit RingWriter(std::span<std::byte> memory);

  // Bytes of the stream that have left, in the ring or lent. Not while lending.
  std::uint64_t position() const { return head_ + loan_first_ + loan_bytes_; }

  // Copies and publishes up to kRingPublishBytes of `from`; 0: full. protocol if the reader's count is impossible.
  Result<std::size_t> write(PieceCursor& from);

  // Whether the reader slept when we last published; it will not be reported again for this sleep: wake it.
  bool take_reader_asleep() { return take(header_->reader_asleep); }
  void set_asleep(bool asleep) { header_->writer_asleep.store(asleep, std::memory_order_seq_cst); }
  // Whether the reader released room, or read more of the loan, since the last write, `loan_read` or call of this.
  bool room_changed();

  bool loans_refused() const { return header_->loans_refused.load(std::memory_order_acquire) != 0; }
  bool lending() const { return lending_; }
  // Lends; `loan_ready` makes bytes readable. Not while lending.
  void lend(const Loan& loan);
  // Of the loan, `bytes` can be read now (it never shrinks); whether that is news.
  bool loan_ready(std::uint64_t bytes);
  // How many bytes of the loan were read; all: it has ended. Nothing: it was refused and never was. protocol if the
  // reader's count is impossible.
  Result<std::optional<std::uint64_t>> loan_read();
  // Takes the loan back, if there is one.
  void withdraw();

 private:
  friend class RingReader;
  static bool take(std::atomic<std::uint32_t>& asleep) {
    return asleep.load(std::memory_order_seq_cst) != 0 && asleep.exchange(0, std::memory_order_seq_cst) != 0;
  }

  RingHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0, index_ = 0;  // index_ = head_ % capacity_
  std::uint64_t head_ = 0, tail_ = 0;     // tail_: as last seen
  bool lending_ = false;
  std::uint64_t loans_ = 0, loan_bytes_ = 0;
  std::uint64_t loan_first_ = 0;                         // bytes of all loans before
  std::uint64_t loan_ready_ = 0, loan_read_looked_ = 0;  // as published, as last seen
};

class RingReader {
 public:
  RingReader() = default;
  // Takes over the reading side of a ring that somebody else made. protocol if it is none or does not fit the memory.
  static Result<RingReader> attach(std::span<std::byte> memory);

  // The unread bytes as far as they lie contiguously; at least `at_least` (1 to kPeekBytes) unless fewer were published.
  // Valid until the next call of peek. protocol if the writer's count is impossible.
  Result<std::span<const std::byte>> peek(std::size_t at_least);
  // Drops bytes that peek showed. False: they were lent and have been withdrawn meanwhile.
  bool consume(std::size_t count);
  // Copies what is there into `into`, returns the number of bytes.
  Result<std::size_t> read(std::span<std::byte> into);

  // Bytes of the stream that were consumed.
  std::uint64_t position() const { return tail_ + loan_read_; }

  // Whether the writer slept for room and room was released since the last call of this: wake it.
  bool take_writer_asleep() { return std::exchange(released_news_, false) && RingWriter::take(header_->writer_asleep); }
  // The same of a writer that waits for something else.
  bool take_writer_asleep_now() { return RingWriter::take(header_->writer_asleep); }
  void set_asleep(bool asleep) { header_->reader_asleep.store(asleep, std::memory_order_seq_cst); }
  // Whether bytes were published or lent since the last peek that looked, or call of this.
  bool bytes_changed();

  // The loan that comes next in the stream and was neither taken nor refused; nothing if there is none or other bytes come
  // first. Once taken, with where it can be read here, peek, read and consume go on in it.
  std::optional<Loan> next_loan();
  void take_loan(const Loan& loan, const std::byte* data);
  void refuse_loan();

 private:
  RingHeader* header_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t capacity_ = 0, index_ = 0;              // index_ = tail_ % capacity_
  std::uint64_t head_ = 0, tail_ = 0, released_ = 0;  // head_: as last seen and checked; released_: tail as published
  std::uint64_t head_looked_ = 0;                     // as last seen, perhaps not checked
  bool released_news_ = false;

  Result<std::span<const std::byte>> peek_loan();
  bool consume_loan(std::size_t count);
  const std::byte* loan_data_ = nullptr;  // set while a loan is being read
  std::uint64_t loans_ = 0;               // taken or refused
  std::uint64_t loan_bytes_ = 0, loan_first_ = 0;
  std::uint64_t loan_ready_ = 0, loan_read_ = 0, loan_read_published_ = 0;  // of all loans; ready: as seen and checked
  std::uint64_t loan_news_looked_ = 0;
  alignas(16) std::array<std::byte, kPeekBytes> bounce_{};  // bytes from both ends, shown as one stretch
};

}  // namespace gradsync
