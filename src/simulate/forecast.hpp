// Forecast: the schedules walked over seconds on a network model, by the cursor that also runs them.
//
// A rank's processor does one thing at a time: `overhead_s` for a send, `overhead_s` and gamma a byte added for a
// receive, gamma a byte for a local reduction; copies are free. A send leaves when its overhead is done and the port
// out is free, and occupies the port for beta a byte; the step is done then. The message's head is at the receiver
// alpha later, occupies the port in for beta a byte (heads queue in the order in which they come), and has then landed;
// but not before the slower port out of its sender has let the last byte go. A slow receiver holds up no sender.
// A receive starts once its message has landed, the cursor allows it and the processor is free. Ranks start together,
// buffers are not bounded. So n ranks' ring all-reduce of S bytes takes 2(n-1) (2 overhead + alpha + S/n beta) + (n-1)
// S/n gamma, exactly.
//
// Event by event and deterministic: equal inputs give equal numbers on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "simulate/network.hpp"
#include "simulate/traffic.hpp"

namespace gradsync {

struct Forecast {
  double seconds = 0;                // until the last rank is done
  std::vector<double> rank_seconds;  // until each rank is done
  std::vector<Traffic> ranks;
  Traffic total;
};

// What is sent: its element counts on each rank.
struct Payload {
  LayoutsOf layouts;
  std::uint64_t element_bytes = 4;
};

// Fails with check()'s error, and for worlds whose schedules never end (which no proven schedule does), with the ranks
// that wait. Memory: about 4 KiB a rank and 48 bytes a message under way, whatever the schedule's length.
Result<Forecast> simulate(const World& world, const Payload& payload, const Network& network);
Result<Forecast> simulate(const Recipe& recipe, const Payload& payload, const Network& network);
// `count` elements of the message, or of a block where the collective has blocks.
Result<Forecast> simulate(const Recipe& recipe, std::uint64_t count, std::uint64_t element_bytes,
                          const Network& network);

}  // namespace gradsync
