// The values that a proof walks over. Each also carries an expression hash: the hash of a combination is symmetric in
// its two operands (a + b is b + a on every dtype, bit for bit) and not associative (float sums are not), so that equal
// hashes mean bitwise equal results.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/status.hpp"
#include "verify/demand.hpp"

namespace gradsync {

inline std::uint64_t leaf_hash(std::uint32_t chunk, std::uint32_t rank) {
  return mix64(std::uint64_t{chunk} << 32 | rank);
}
inline std::uint64_t combine_hash(std::uint64_t a, std::uint64_t b) {
  return mix64(std::min(a, b) + 3 * mix64(std::max(a, b) ^ 0x5851f42d4c957f2du));
}

// Sets of contributions, of up to 64 * Words ranks.
template <std::size_t Words>
class SetDomain {
 public:
  struct Value {
    std::array<std::uint64_t, Words> set{};  // ranks; none: never written
    std::uint64_t hash = 0;
    std::uint32_t chunk = 0;  // of the message
  };
  explicit SetDomain(std::uint32_t ranks) {
    GRADSYNC_CHECK(ranks <= 64 * Words);
    for (std::uint32_t r = 0; r < ranks; ++r) everyone_[r / 64] |= std::uint64_t{1} << r % 64;
  }
  Value leaf(std::uint32_t chunk, std::uint32_t rank) const {
    Value value;
    value.set[rank / 64] = std::uint64_t{1} << rank % 64;
    value.hash = leaf_hash(chunk, rank);
    value.chunk = chunk;
    return value;
  }
  bool written(const Value& value) const { return value.set != std::array<std::uint64_t, Words>{}; }
  std::uint64_t hash(const Value& value) const { return value.hash; }

  // Adds `other` to `into`. False, with `into` unchanged, if a contribution would be there twice or the chunks differ.
  bool combine(Value& into, const Value& other) const {
    if (into.chunk != other.chunk) return false;
    for (std::size_t i = 0; i < Words; ++i)
      if (into.set[i] & other.set[i]) return false;
    for (std::size_t i = 0; i < Words; ++i) into.set[i] |= other.set[i];
    into.hash = combine_hash(into.hash, other.hash);
    return true;
  }
  bool satisfies(const Value& value, const Demand& demand) const {
    if (value.chunk != demand.chunk) return false;
    if (demand.from == Demand::everyone) return value.set == everyone_;
    return value.set == leaf(demand.chunk, demand.from).set;
  }
  std::string describe(const Value& value) const {
    if (!written(value)) return "nothing";
    std::string ranks;
    for (std::uint32_t r = 0; r < 64 * Words; ++r)
      if (value.set[r / 64] >> r % 64 & 1u) ranks += fmt::format("{}{}", ranks.empty() ? "" : " ", r);
    return fmt::format("chunk {} of ranks {{{}}}", value.chunk, ranks);
  }

 private:
  std::array<std::uint64_t, Words> everyone_{};
};

// Sums of random numbers modulo the prime 2^61 - 1, one number for each (chunk, rank): a multiset other than the
// promised one has the promised sum with a probability of about 2^-61. 16 bytes a chunk, whatever the world.
class FingerprintDomain {
 public:
  struct Value {
    std::uint64_t sum = 0;  // 0: never written
    std::uint64_t hash = 0;
  };
  explicit FingerprintDomain(std::uint32_t ranks) : ranks_(ranks) {}
  Value leaf(std::uint32_t chunk, std::uint32_t rank) const {
    const std::uint64_t hash = leaf_hash(chunk, rank);
    return {number(hash), hash};
  }
  bool written(const Value& value) const { return value.sum != 0; }
  std::uint64_t hash(const Value& value) const { return value.hash; }
  bool combine(Value& into, const Value& other) const {
    into.sum = add(into.sum, other.sum);
    into.hash = combine_hash(into.hash, other.hash);
    return true;
  }
  bool satisfies(const Value& value, const Demand& demand) {
    if (demand.from != Demand::everyone) return value.sum == leaf(demand.chunk, demand.from).sum;
    return value.sum == everyone(demand.chunk);
  }
  std::string describe(const Value& value) const {
    return written(value) ? fmt::format("fingerprint {:016x}", value.sum) : std::string("nothing");
  }

 private:
  static constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
  static std::uint64_t number(std::uint64_t hash) { return mix64(hash ^ 0xa0761d6478bd642fu) % (kPrime - 1) + 1; }
  static std::uint64_t add(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t sum = a + b;
    return sum >= kPrime ? sum - kPrime : sum;
  }
  std::uint64_t everyone(std::uint32_t chunk) {
    if (chunk >= everyone_.size()) everyone_.resize(std::max<std::size_t>(chunk + 1, 2 * everyone_.size()), 0);
    std::uint64_t& sum = everyone_[chunk];
    if (sum == 0)
      for (std::uint32_t r = 0; r < ranks_; ++r) sum = add(sum, leaf(chunk, r).sum);
    return sum;
  }
  std::uint32_t ranks_;
  std::vector<std::uint64_t> everyone_;  // by chunk, 0: not yet summed
};

}  // namespace gradsync
