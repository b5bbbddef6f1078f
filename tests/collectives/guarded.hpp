// Elements at an odd element offset, between two guards of 64 bytes that must stay as they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync::test {

class Guarded {
 public:
  // From now on in registered memory, which is given back and taken anew every few calls.
  void register_with(Communicator& comm) { comm_ = &comm; }

  // Room for `count` elements; all of it, and the guards, are set anew. Memory is kept between calls.
  void prepare(std::size_t count, std::size_t element_bytes, std::size_t odd_offset) {
    begin_ = guard + odd_offset * element_bytes;
    bytes_ = count * element_bytes;
    reserve(begin_ + bytes_ + guard + 64);
    std::memset(base() + begin_ - guard, kFill, bytes_ + 2 * guard);
  }
  std::byte* data() { return base() + begin_; }
  // Whether nothing was written outside.
  bool intact() const {
    const std::byte* before = const_cast<Guarded*>(this)->base() + begin_ - guard;
    return untouched(before, guard) && untouched(before + guard + bytes_, guard);
  }
  // Whether `bytes` still hold what prepare() put there.
  static bool untouched(const std::byte* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
      if (data[i] != static_cast<std::byte>(kFill)) return false;
    return true;
  }

  static constexpr std::size_t guard = 64;

 private:
  static constexpr int kFill = 0xa5;
  // The first address that is a multiple of 64: the offset alone decides the alignment.
  std::byte* base() {
    const auto address = reinterpret_cast<std::size_t>(all_.data());
    return all_.data() + (64 - address % 64) % 64;
  }

  void reserve(std::size_t bytes) {
    if (comm_ == nullptr) {
      if (ordinary_.size() < bytes) ordinary_.resize(bytes);
      all_ = ordinary_;
    } else if (registered_.bytes() < bytes || ++uses_ % kUses == 0) {
      registered_ = Memory();
      registered_ = comm_->allocate(bytes);
      all_ = registered_.as<std::byte>();
    }
  }

  static constexpr std::uint32_t kUses = 17;
  Communicator* comm_ = nullptr;
  std::vector<std::byte> ordinary_;
  Memory registered_;
  std::uint32_t uses_ = 0;
  std::span<std::byte> all_;
  std::size_t begin_ = guard, bytes_ = 0;
};

}  // namespace gradsync::test
