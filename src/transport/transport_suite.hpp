// What the tests of all transports share: worlds of connected transports, and helpers that drive them with deadlines.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "transport/transport.hpp"

namespace gradsync::testing {

using namespace std::chrono_literals;

using World = std::vector<std::unique_ptr<Transport>>;

struct Maker {
  std::string name;
  std::function<World(std::uint32_t size)> make;
};

inline Deadline soon() { return Deadline::after(60s); }

// How a helper waits when nothing moves.
enum class Waiting { yields, sleeps };

inline void wait(Transport& transport, Waiting how, Deadline deadline) {
  if (how == Waiting::yields) return std::this_thread::yield();
  if (transport.arm()) {
    pollfd poll_for{transport.descriptor(), POLLIN, 0};
    ::poll(&poll_for, 1, deadline.poll_milliseconds());
  }
  transport.disarm();
}

// The first `count` bytes of an endless sequence that the seed names.
inline std::vector<std::byte> pattern(std::uint64_t seed, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = mix64(seed + i / 8);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

inline Status out_of_time(const char* what) { return failure(ErrorCode::timeout, "test: {} took too long", what); }

inline Status send_all(Transport& transport, Peer to, std::span<const std::byte> bytes, Waiting how = Waiting::yields,
                       Deadline deadline = soon()) {
  while (!bytes.empty()) {
    const std::span<const std::byte> pieces[] = {bytes.first(bytes.size() / 3), bytes.subspan(bytes.size() / 3)};
    auto sent = transport.send(to, pieces);
    if (!sent.ok()) return sent.status();
    bytes = bytes.subspan(*sent);
    if (deadline.passed()) return out_of_time("send");
    if (*sent == 0) wait(transport, how, deadline);
  }
  return {};
}

inline Status receive_all(Transport& transport, Peer from, std::span<std::byte> into, Waiting how = Waiting::yields,
                          Deadline deadline = soon()) {
  while (!into.empty()) {
    auto got = transport.receive(from, into);
    if (!got.ok()) return got.status();
    into = into.subspan(*got);
    if (deadline.passed()) return out_of_time("receive");
    if (*got == 0) wait(transport, how, deadline);
  }
  return {};
}

}  // namespace gradsync::testing
