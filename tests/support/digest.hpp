// SHA-256, to compare results of several processes without moving them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gradsync::test {

using Sha256 = std::array<std::uint8_t, 32>;

// One digest of everything that was added, in order.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void add(std::span<const std::byte> bytes);
  Sha256 take();  // and begins anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hex(const Sha256& digest);

}  // namespace gradsync::test
