// An ordered group of ranks, as one of its members sees it.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.hpp"

namespace gradsync {

// Either an arithmetic progression (first, first + stride, …) or a borrowed table of ranks.
// `me` is this member's position; an outsider has none and must not use the team.
class Team {
 public:
  static Team progression(std::uint32_t first, std::uint32_t stride, std::uint32_t size, std::uint32_t me) {
    return Team(first, stride, size, me, nullptr);
  }
  static Team world(std::uint32_t size, std::uint32_t rank) { return progression(0, 1, size, rank); }
  // The table is borrowed for the life of the team.
  static Team of(std::span<const std::uint32_t> ranks, std::uint32_t me) {
    return Team(0, 0, static_cast<std::uint32_t>(ranks.size()), me, ranks.data());
  }

  std::uint32_t size() const { return size_; }
  std::uint32_t me() const { return me_; }
  std::uint32_t rank(std::uint32_t position) const {
    GRADSYNC_CHECK(position < size_);
    return table_ ? table_[position] : first_ + stride_ * position;
  }
  // The rank `distance` positions after (before) mine, round the end.
  std::uint32_t after(std::uint32_t distance) const { return rank((me_ + distance % size_) % size_); }
  std::uint32_t before(std::uint32_t distance) const { return rank((me_ + size_ - distance % size_) % size_); }

 private:
  Team(std::uint32_t first, std::uint32_t stride, std::uint32_t size, std::uint32_t me, const std::uint32_t* table)
      : first_(first),
        stride_(stride),
        size_(size),
        me_(me),
        table_(table) {
    GRADSYNC_CHECK(size > 0 && me < size);
  }
  std::uint32_t first_, stride_, size_, me_;
  const std::uint32_t* table_;
};

}  // namespace gradsync
