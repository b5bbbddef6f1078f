#include "transport/ring.hpp"

#include <algorithm>
#include <cstring>
#include <new>

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
  if (tail == tail_) return false;
  if (tail - tail_ <= head_ - tail_) tail_ = tail;  // otherwise the next write reports it
  return true;
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

void RingReader::consume(std::size_t count) {
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
    consume(count);
    moved += count;
  }
  return moved;
}

bool RingReader::bytes_changed() {
  const std::uint64_t head = header_->head.load(std::memory_order_seq_cst);
  return std::exchange(head_looked_, head) != head;
}

}  // namespace gradsync
