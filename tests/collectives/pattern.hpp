// A long message made of one table, cheap to write and to compare: position i holds entry (i + turn(i / length)) mod length.
// The turns keep a stretch that lies a multiple of the length elsewhere from looking right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/numbers.hpp"

namespace gradsync::test {

class Pattern {
 public:
  static constexpr std::size_t length = 65521;  // entries; prime, so that it divides no piece, chunk or ring

  Pattern() = default;
  Pattern(DType dtype, const std::function<Bits(std::size_t entry)>& bits);

  // Which entry a position of message `salt` holds.
  static std::size_t entry(std::uint64_t salt, std::size_t position) {
    return (position % length + turn(salt, position / length)) % length;
  }
  // Writes, or compares, `count` elements that lie from `position` on. The first position that differs.
  void write(std::byte* out, std::uint64_t salt, std::size_t position, std::size_t count) const;
  std::optional<std::size_t> difference(const std::byte* got, std::uint64_t salt, std::size_t position,
                                        std::size_t count) const;
  Bits bits(std::uint64_t salt, std::size_t position) const;

 private:
  static std::size_t turn(std::uint64_t salt, std::size_t block);
  // Calls for every stretch that is contiguous in the table: visit(bytes in the table, offset in the message, bytes).
  void for_each_run(std::uint64_t salt, std::size_t position, std::size_t count,
                    const std::function<bool(const std::byte*, std::size_t, std::size_t)>& visit) const;

  std::size_t element_ = 1;
  std::vector<std::byte> table_;
};

}  // namespace gradsync::test
