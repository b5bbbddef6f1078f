// A position in a list of pieces of memory that are sent one after another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/status.hpp"

namespace gradsync {

using Pieces = std::span<const std::span<const std::byte>>;

inline std::size_t bytes_of(Pieces pieces) {
  std::size_t sum = 0;
  for (auto piece : pieces) sum += piece.size();
  return sum;
}

class PieceCursor {
 public:
  explicit PieceCursor(Pieces pieces) : pieces_(pieces), left_(bytes_of(pieces)) {}

  std::size_t left() const { return left_; }
  // The longest stretch at the position that lies in one piece; empty only at the end.
  std::span<const std::byte> stretch() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size()) ++piece_, offset_ = 0;
    return piece_ < pieces_.size() ? pieces_[piece_].subspan(offset_) : std::span<const std::byte>();
  }
  void skip(std::size_t count) {
    GRADSYNC_CHECK(count <= left_);
    left_ -= count;
    while (count > 0) {
      const std::size_t step = std::min(count, stretch().size());
      offset_ += step;
      count -= step;
    }
  }
  // Copies the next `count` bytes to `to`.
  void copy(std::byte* to, std::size_t count) {
    GRADSYNC_CHECK(count <= left_);
    left_ -= count;
    while (count > 0) {
      const auto from = stretch();
      const std::size_t step = std::min(count, from.size());
      std::memcpy(to, from.data(), step);
      to += step;
      offset_ += step;
      count -= step;
    }
  }

 private:
  Pieces pieces_;
  std::size_t piece_ = 0, offset_ = 0, left_ = 0;
};

}  // namespace gradsync
