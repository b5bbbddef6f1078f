#include "transport/ring.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/limits.hpp"

namespace gradsync {

RingWriter::RingWriter(std::span<std::byte> memory) {
  GRADSYNC_CHECK(memory.size() > kRingHeaderBytes && ring_capacity_valid(memory.size() - kRingHeaderBytes));
  header_ = new (memory.data()) RingHeader{};
  data_ = memory.data() + kRingHeaderBytes;
  capacity_ = memory.size() - kRingHeaderBytes;
  header_->capacity.store(capacity_, std::memory_order_relaxed);
  header_->magic.store(kRingMagic, std::memory_order_release);
}

Result<std::size_t> RingWriter::write(PieceCursor& from) {
  GRADSYNC_CHECK(!lending_);
  const std::size_t wanted = std::min(from.left(), kRingPublishBytes);
  if (capacity_ - (head_ - tail_) < wanted) {
    const std::uint64_t tail = header_->tail.load(std::memory_order_acquire);
    if (tail - tail_ > head_ - tail_)  // it may only grow, and not beyond what was written
      return failure(ErrorCode::protocol, "ring: the reader released byte {}, expected {} to {}", tail, tail_, head_);
    tail_ = tail;
  }
  const std::size_t count = std::min<std::size_t>(wanted, capacity_ - (head_ - tail_));
  if (count == 0) return std::size_t{0};
  const std::size_t first = std::min(count, capacity_ - index_);
  from.copy(data_ + index_, first);
  if (count > first) from.copy(data_, count - first);
  index_ = first == capacity_ - index_ ? count - first : index_ + count;
  head_ += count;
  header_->head.store(head_, std::memory_order_seq_cst);
  return count;
}

bool RingWriter::room_changed() {
  const std::uint64_t tail = header_->tail.load(std::memory_order_seq_cst);
  if (lending_) {
    const std::uint64_t read = header_->loan_read.load(std::memory_order_seq_cst);
    const bool refused = header_->loans_refused.load(std::memory_order_seq_cst) != 0;
    if (std::exchange(loan_read_looked_, read) != read || refused) return true;
  }
  if (tail == tail_) return false;
  if (tail - tail_ <= head_ - tail_) tail_ = tail;  // otherwise the next write reports it
  return true;
}

void RingWriter::lend(const Loan& loan) {
  GRADSYNC_CHECK(!lending_ && loan.bytes > 0);
  lending_ = true;
  loan_first_ += std::exchange(loan_bytes_, loan.bytes);
  loan_ready_ = loan_read_looked_ = loan_first_;
  header_->loan_memory.store(loan.memory, std::memory_order_relaxed);
  header_->loan_offset.store(loan.offset, std::memory_order_relaxed);
  header_->loan_bytes.store(loan.bytes, std::memory_order_relaxed);
  header_->loans.store(++loans_, std::memory_order_seq_cst);
}

bool RingWriter::loan_ready(std::uint64_t bytes) {
  GRADSYNC_CHECK(lending_ && bytes <= loan_bytes_ && loan_first_ + bytes >= loan_ready_);
  if (loan_first_ + bytes == loan_ready_) return false;
  loan_ready_ = loan_first_ + bytes;
  header_->loan_ready.store(loan_ready_, std::memory_order_seq_cst);
  return true;
}

Result<std::optional<std::uint64_t>> RingWriter::loan_read() {
  GRADSYNC_CHECK(lending_);
  const std::uint64_t read = header_->loan_read.load(std::memory_order_acquire);
  if (loans_refused()) {
    lending_ = false;
    loan_bytes_ = 0;
    return std::optional<std::uint64_t>();
  }
  if (read < loan_read_looked_ || read > loan_ready_)
    return failure(ErrorCode::protocol, "ring: the reader has read byte {} of loans, expected {} to {}", read,
                   loan_read_looked_, loan_ready_);
  loan_read_looked_ = read;
  if (read == loan_first_ + loan_bytes_) lending_ = false;
  return std::optional<std::uint64_t>(read - loan_first_);
}

void RingWriter::withdraw() {
  if (lending_) header_->loan_withdrawn.store(1, std::memory_order_seq_cst);
}

Result<RingReader> RingReader::attach(std::span<std::byte> memory) {
  if (memory.size() <= kRingHeaderBytes)
    return failure(ErrorCode::protocol, "ring: {} bytes of memory, expected more than {}", memory.size(),
                   kRingHeaderBytes);
  RingReader reader;
  reader.header_ = std::launder(reinterpret_cast<RingHeader*>(memory.data()));
  const std::uint64_t magic = reader.header_->magic.load(std::memory_order_acquire);
  if (magic != kRingMagic)
    return failure(ErrorCode::protocol, "ring: starts with {:#x}, expected {:#x}", magic, kRingMagic);
  const std::uint64_t capacity = reader.header_->capacity.load(std::memory_order_relaxed);
  if (!ring_capacity_valid(capacity) || capacity != memory.size() - kRingHeaderBytes)
    return failure(ErrorCode::protocol, "ring: capacity {} in {} bytes of memory", capacity, memory.size());
  reader.data_ = memory.data() + kRingHeaderBytes;
  reader.capacity_ = capacity;
  return reader;
}

Result<std::span<const std::byte>> RingReader::peek(std::size_t at_least) {
  GRADSYNC_CHECK(at_least <= kPeekBytes);
  if (loan_data_ != nullptr) return peek_loan();
  if (head_ - tail_ < std::max<std::size_t>(at_least, 1)) {
    const std::uint64_t head = header_->head.load(std::memory_order_acquire);
    head_looked_ = head;
    if (head - tail_ > capacity_ || head - tail_ < head_ - tail_)
      return failure(ErrorCode::protocol, "ring: the writer published byte {}, expected {} to {}", head, head_,
                     tail_ + capacity_);
    head_ = head;
  }
  const std::size_t unread = head_ - tail_;
  const std::size_t first = std::min(unread, capacity_ - index_);
  if (first >= at_least || first == unread) return std::span<const std::byte>(data_ + index_, first);
  const std::size_t shown = std::min(unread, kPeekBytes);
  std::memcpy(bounce_.data(), data_ + index_, first);
  std::memcpy(bounce_.data() + first, data_, shown - first);
  return std::span<const std::byte>(bounce_.data(), shown);
}

Result<std::span<const std::byte>> RingReader::peek_loan() {
  if (header_->loan_withdrawn.load(std::memory_order_acquire) != 0)
    return failure(ErrorCode::peer_lost, "the sender has ended its operation");
  const std::uint64_t ready = header_->loan_ready.load(std::memory_order_acquire);
  if (ready < loan_ready_ || ready > loan_first_ + loan_bytes_)
    return failure(ErrorCode::protocol, "ring: the writer lent byte {}, expected {} to {}", ready, loan_ready_,
                   loan_first_ + loan_bytes_);
  loan_ready_ = ready;
  return std::span<const std::byte>(loan_data_ + (loan_read_ - loan_first_),
                                    static_cast<std::size_t>(ready - loan_read_));
}

bool RingReader::consume_loan(std::size_t count) {
  GRADSYNC_CHECK(count <= loan_ready_ - loan_read_);
  loan_read_ += count;
  const bool all = loan_read_ == loan_first_ + loan_bytes_;
  // All that is ready: the writer may wait for these very bytes to make more.
  if (!all && loan_read_ != loan_ready_ && loan_read_ - loan_read_published_ < limits::loan_publish_bytes) return true;
  loan_read_published_ = loan_read_;
  released_news_ = true;
  header_->loan_read.store(loan_read_, std::memory_order_seq_cst);
  // After the store: what was read before it is sound if nothing is withdrawn yet.
  const bool sound = header_->loan_withdrawn.load(std::memory_order_seq_cst) == 0;
  if (all && sound) loan_data_ = nullptr;
  return sound;
}

std::optional<Loan> RingReader::next_loan() {
  if (loan_data_ != nullptr || header_->loans.load(std::memory_order_acquire) == loans_) return std::nullopt;
  if (header_->head.load(std::memory_order_acquire) != tail_) return std::nullopt;
  return Loan{header_->loan_memory.load(std::memory_order_relaxed),
              header_->loan_offset.load(std::memory_order_relaxed),
              header_->loan_bytes.load(std::memory_order_relaxed)};
}

void RingReader::take_loan(const Loan& loan, const std::byte* data) {
  ++loans_;
  loan_data_ = data;
  loan_first_ = loan_ready_ = loan_read_;
  loan_bytes_ = loan.bytes;
}

void RingReader::refuse_loan() {
  ++loans_;
  released_news_ = true;
  header_->loans_refused.store(1, std::memory_order_seq_cst);
}

bool RingReader::consume(std::size_t count) {
  if (loan_data_ != nullptr) return consume_loan(count);
  GRADSYNC_CHECK(count <= head_ - tail_);
  tail_ += count;
  index_ += count;
  if (index_ >= capacity_) index_ -= capacity_;
  // Released in eighths: the writer's line is touched seldom, and it never starves, as it always sees 7/8 of the truth.
  if (tail_ - released_ >= capacity_ / 8) {
    released_ = tail_;
    released_news_ = true;
    header_->tail.store(tail_, std::memory_order_seq_cst);
  }
  return true;
}

Result<std::size_t> RingReader::read(std::span<std::byte> into) {
  std::size_t moved = 0;
  while (moved < into.size()) {
    auto shown = peek(1);
    if (!shown.ok()) {
      if (moved > 0) break;
      return shown.status();
    }
    if (shown->empty()) break;
    // In steps, so that the writer gets room before the end.
    const std::size_t count = std::min({shown->size(), into.size() - moved, kRingPublishBytes});
    std::memcpy(into.data() + moved, shown->data(), count);
    if (!consume(count)) return peek(1).status();  // taken back: why
    moved += count;
  }
  return moved;
}

bool RingReader::bytes_changed() {
  const std::uint64_t head = header_->head.load(std::memory_order_seq_cst);
  const std::uint64_t loans = header_->loans.load(std::memory_order_seq_cst) +
                              header_->loan_ready.load(std::memory_order_seq_cst) +
                              header_->loan_withdrawn.load(std::memory_order_seq_cst);  // all only grow
  const bool lent = std::exchange(loan_news_looked_, loans) != loans;
  return std::exchange(head_looked_, head) != head || lent;
}

}  // namespace gradsync
