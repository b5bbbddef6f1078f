#include "collectives/pattern.hpp"

#include <algorithm>
#include <cstring>

#include "base/random.hpp"

namespace gradsync::test {

Pattern::Pattern(DType dtype, const std::function<Bits(std::size_t)>& bits)
    : element_(size_of(dtype)),
      table_(length * element_) {
  for (std::size_t i = 0; i < length; ++i) {
    const Bits value = bits(i);
    std::memcpy(&table_[i * element_], &value, element_);  // little-endian: the low bytes come first
  }
}

std::size_t Pattern::turn(std::uint64_t salt, std::size_t block) { return mix64(salt * 1000003 + block) % length; }

void Pattern::for_each_run(std::uint64_t salt, std::size_t position, std::size_t count,
                           const std::function<bool(const std::byte*, std::size_t, std::size_t)>& visit) const {
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = position + done, first = entry(salt, at);
    const std::size_t run = std::min({count - done, length - at % length, length - first});
    if (!visit(&table_[first * element_], done * element_, run * element_)) return;
    done += run;
  }
}

void Pattern::write(std::byte* out, std::uint64_t salt, std::size_t position, std::size_t count) const {
  for_each_run(salt, position, count, [&](const std::byte* from, std::size_t at, std::size_t bytes) {
    std::memcpy(out + at, from, bytes);
    return true;
  });
}

std::optional<std::size_t> Pattern::difference(const std::byte* got, std::uint64_t salt, std::size_t position,
                                               std::size_t count) const {
  std::optional<std::size_t> found;
  for_each_run(salt, position, count, [&](const std::byte* wanted, std::size_t at, std::size_t bytes) {
    if (std::memcmp(got + at, wanted, bytes) == 0) return true;
    const auto first = std::mismatch(wanted, wanted + bytes, got + at).first - wanted;
    found = position + (at + static_cast<std::size_t>(first)) / element_;
    return false;
  });
  return found;
}

Bits Pattern::bits(std::uint64_t salt, std::size_t position) const {
  Bits value = 0;
  std::memcpy(&value, &table_[entry(salt, position) * element_], element_);
  return value;
}

}  // namespace gradsync::test
