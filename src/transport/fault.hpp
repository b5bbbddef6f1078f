// Faults on purpose, from a seed: a wrapper around any transport, for tests.
//
// Every decision is a function of the seed, the stream and the number of its bytes that were already moved, never of the
// time: the same program with the same seed meets the same faults at the same bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "transport/transport.hpp"

namespace gradsync {

struct FaultPlan {
  std::uint64_t seed = 1;
  // With this probability what comes next on a stream is held back, for up to the longest delay.
  double delay_probability = 0;
  Nanoseconds delay_max{0};
  // Both directions to the peer break with peer_lost once this many bytes of one of them have passed.
  struct Loss {
    std::uint32_t peer = 0;
    std::uint64_t after_bytes = 0;
  };
  std::optional<Loss> lost = std::nullopt;
  // From then on nothing moves between this rank and those peers, silently, in the direction that has passed this many bytes.
  struct Partition {
    std::vector<std::uint32_t> peers;
    std::uint64_t after_bytes = 0;
  };
  std::optional<Partition> partition = std::nullopt;
  // Sends take and peeks show at most a random number of bytes up to this (no fewer than peek is asked for); 0: no limit.
  std::uint32_t max_piece = 0;
};

// `clock` ends the delays.
std::unique_ptr<Transport> fault_transport(std::unique_ptr<Transport> inner, FaultPlan plan,
                                           std::shared_ptr<const Clock> clock);

}  // namespace gradsync
