// Fixed-width, little-endian reading and writing of wire and disk formats. Never a memcpy of a struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace gradsync {

// Headers are read and written for each message: positions are kept apart from the bytes, which might be the position's own,
// so that the compiler makes one load or store of a number.
//
// Appends to a span of fixed size; writing past its end is a bug.
class WireWriter {
 public:
  explicit WireWriter(std::span<std::byte> out) : out_(out) {}

  void u8(std::uint8_t v) { put(v, 1); }
  void u16(std::uint16_t v) { put(v, 2); }
  void u32(std::uint32_t v) { put(v, 4); }
  void u64(std::uint64_t v) { put(v, 8); }
  void bytes(std::string_view text) {
    GRADSYNC_CHECK(used_ + text.size() <= out_.size());
    for (char c : text) out_[used_++] = static_cast<std::byte>(c);
  }
  std::size_t used() const { return used_; }

 private:
  void put(std::uint64_t v, std::size_t width) {
    GRADSYNC_CHECK(used_ + width <= out_.size());
    std::byte* const at = out_.data() + used_;
    used_ += width;
    for (std::size_t i = 0; i < width; ++i) at[i] = static_cast<std::byte>((v >> (8 * i)) & 0xff);
  }
  std::span<std::byte> out_;
  std::size_t used_ = 0;
};

// Reads from a span; reading past its end yields zeros and `ok()` turns false.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> in) : in_(in) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(get(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(get(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(get(4)); }
  std::uint64_t u64() { return get(8); }
  std::string bytes(std::size_t count) {
    if (count > in_.size() - used_) return ok_ = false, std::string();
    std::string text(reinterpret_cast<const char*>(in_.data()) + used_, count);
    used_ += count;
    return text;
  }
  bool ok() const { return ok_; }
  std::size_t left() const { return in_.size() - used_; }

 private:
  std::uint64_t get(std::size_t width) {
    if (width > in_.size() - used_) return ok_ = false, 0;
    std::uint64_t v = 0;
    const std::byte* const at = in_.data() + used_;
    for (std::size_t i = 0; i < width; ++i) v |= static_cast<std::uint64_t>(at[i]) << (8 * i);
    used_ += width;
    return v;
  }
  std::span<const std::byte> in_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

}  // namespace gradsync
