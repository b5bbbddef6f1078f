// Elements at an odd element offset, between two guards of 64 bytes that must stay as they are.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace gradsync::test {

class Guarded {
 public:
  // Room for `count` elements; all of it, and the guards, are set anew. Memory is kept between calls.
  void prepare(std::size_t count, std::size_t element_bytes, std::size_t odd_offset) {
    begin_ = guard + odd_offset * element_bytes;
    bytes_ = count * element_bytes;
    if (all_.size() < begin_ + bytes_ + guard + 64) all_.resize(begin_ + bytes_ + guard + 64);
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

  std::vector<std::byte> all_;
  std::size_t begin_ = guard, bytes_ = 0;
};

}  // namespace gradsync::test
