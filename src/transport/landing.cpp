#include "transport/landing.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/limits.hpp"

namespace gradsync {

std::span<std::byte> whole_pages(std::span<std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = (first + page - 1) / page * page, end = (first + bytes.size()) / page * page;
  return begin < end ? bytes.subspan(begin - first, end - begin) : std::span<std::byte>();
}

std::span<std::byte> pages_around(std::span<std::byte> bytes) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = first / page * page, end = (first + bytes.size() + page - 1) / page * page;
  return {bytes.data() - (first - begin), end - begin};
}

LandingReceiver::LandingReceiver(std::span<std::byte> ring)
    : header_(std::launder(reinterpret_cast<LandingHeader*>(ring.data() + kLandingHeaderOffset))) {}

void LandingReceiver::offer(const LandingPlace& place) {
  GRADSYNC_CHECK(!open_ && place.bytes > 0);
  open_ = true;
  bytes_ = place.bytes;
  allowed_ = landed_ = 0;
  header_->offers.store(++offers_, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  header_->allowed.store(0, std::memory_order_relaxed);
  header_->position.store(place.position, std::memory_order_relaxed);
  header_->fingerprint.store(place.fingerprint, std::memory_order_relaxed);
  header_->memory.store(place.memory, std::memory_order_relaxed);
  header_->offset.store(place.offset, std::memory_order_relaxed);
  header_->skip.store(place.skip, std::memory_order_relaxed);
  header_->bytes.store(place.bytes, std::memory_order_relaxed);
  header_->after.store(place.after, std::memory_order_relaxed);
  header_->offers.store(++offers_, std::memory_order_seq_cst);
}

bool LandingReceiver::allow(std::uint64_t bytes) {
  GRADSYNC_CHECK(open_ && bytes <= bytes_);
  if (bytes <= allowed_) return false;
  allowed_ = bytes;
  header_->allowed.store(bytes, std::memory_order_seq_cst);
  return true;
}

bool LandingReceiver::accepted() const { return open_ && header_->accepted.load(std::memory_order_acquire) == offers_; }

Result<std::uint64_t> LandingReceiver::landed() {
  const std::uint64_t landed = header_->landed.load(std::memory_order_acquire);
  if (landed < landed_ || landed > bytes_)
    return failure(ErrorCode::protocol, "landing: the sender has written byte {}, expected {} to {}", landed, landed_,
                   bytes_);
  return landed_ = landed;
}

bool LandingReceiver::still_writing() const {
  return header_->accepted.load(std::memory_order_seq_cst) == offers_ &&
         header_->writing.load(std::memory_order_seq_cst) != 0;
}

void LandingReceiver::give_way() { ::sched_yield(); }

bool LandingReceiver::changed() {
  if (!open_) return false;
  const std::uint64_t now = header_->landed.load(std::memory_order_seq_cst) +
                            (header_->accepted.load(std::memory_order_seq_cst) == offers_ ? 1 : 0);
  return std::exchange(looked_, now) != now;
}

LandingSender::LandingSender(std::span<std::byte> ring)
    : header_(new (ring.data() + kLandingHeaderOffset) LandingHeader{}) {}

std::optional<LandingPlace> LandingSender::offered(std::uint64_t position, std::uint64_t fingerprint) const {
  const std::uint64_t number = header_->offers.load(std::memory_order_acquire);
  if (number % 2 != 0 || number == header_->accepted.load(std::memory_order_relaxed)) return std::nullopt;
  const auto value = [](const std::atomic<std::uint64_t>& field) { return field.load(std::memory_order_relaxed); };
  const LandingPlace place{
      value(header_->position), value(header_->fingerprint), value(header_->memory), value(header_->offset),
      value(header_->skip),     value(header_->bytes),       value(header_->after),  number};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (header_->offers.load(std::memory_order_relaxed) != number) return std::nullopt;
  // An offer for this very message stands until its header has come.
  return place.position == position && place.fingerprint == fingerprint ? std::optional(place) : std::nullopt;
}

void LandingSender::accept(const LandingPlace& place, std::byte* memory) {
  memory_ = memory;
  bytes_ = place.bytes;
  after_ = place.after;
  landed_ = looked_ = 0;
  header_->landed.store(0, std::memory_order_relaxed);
  header_->accepted.store(place.number, std::memory_order_seq_cst);
}

Result<std::span<std::byte>> LandingSender::begin_write(std::uint64_t wanted, std::uint64_t consumed,
                                                        std::uint64_t ahead) {
  if (memory_ == nullptr) return std::span<std::byte>();  // it is full
  std::uint64_t allowed = header_->allowed.load(std::memory_order_acquire);
  if (allowed > bytes_)
    return failure(ErrorCode::protocol, "landing: the receiver allowed byte {}, expected at most {}", allowed, bytes_);
  looked_ = allowed;
  if (after_ != LandingPlace::kNever && consumed >= after_) {
    std::uint64_t read = consumed - after_;
    if (read == landed_) read += ahead;
    allowed = std::max(allowed, std::min(read, bytes_));
  }
  allowed = std::max(allowed, landed_);
  const auto count = static_cast<std::size_t>(
      std::min<std::uint64_t>({wanted, allowed - landed_, std::uint64_t{limits::piece_bytes}}));
  header_->writing.store(1, std::memory_order_seq_cst);
  const bool withdrawn = header_->withdrawn.load(std::memory_order_seq_cst) != 0;
  if (withdrawn || count == 0) header_->writing.store(0, std::memory_order_release);
  if (withdrawn) return failure(ErrorCode::peer_lost, "the receiver has ended its operation");
  return std::span(memory_ + landed_, count);
}

void LandingSender::end_write(std::size_t count) {
  GRADSYNC_CHECK(memory_ != nullptr && count <= bytes_ - landed_);
  header_->writing.store(0, std::memory_order_release);
  if (count == 0) return;
  landed_ += count;
  header_->landed.store(landed_, std::memory_order_seq_cst);
  if (landed_ == bytes_) memory_ = nullptr;
}

bool LandingSender::changed() {
  if (memory_ == nullptr) return false;
  const std::uint64_t now =
      header_->allowed.load(std::memory_order_seq_cst) + header_->withdrawn.load(std::memory_order_seq_cst);
  return std::exchange(looked_, now) != now;
}

}  // namespace gradsync
