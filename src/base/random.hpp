// Seeded randomness: the same seed gives the same numbers on every machine.
#pragma once

#include <cstdint>

namespace gradsync {

// A bijective mixer of 64 bits (the finaliser of SplitMix64; Steele, Lea, Flood 2014, figure 18).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    const std::uint64_t value = mix64(state_);
    state_ += 0x9e3779b97f4a7c15u;
    return value;
  }
  // Uniform in [0, bound), bound > 0; the bias is below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }
  // Uniform in [0, 1).
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace gradsync
