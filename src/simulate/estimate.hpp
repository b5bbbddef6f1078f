// A cheap forecast: one rank against its own image.
#pragma once

#include "simulate/forecast.hpp"

namespace gradsync {

// Walks a few ranks' steps by the rules of forecast.hpp, each as if its peers did at every moment what it does itself:
// when it sends a message, one like it is sent to it. (If it waits for more than it has sent, they were sent when all
// began.) For algorithms in which all ranks do the same on a uniform network this is what the simulation says;
// elsewhere it is an order of magnitude. Costs O(steps of a rank). Requires check(recipe).ok().
struct Estimate {
  double seconds = 0;
  // What no order of events can beat: the busiest processor, port and, between hosts, shared port, of the ranks looked
  // at.
  double at_least_seconds = 0;
  std::uint64_t messages = 0;  // of the whole world, roughly: the cost of simulating it
};
Estimate estimate(const Recipe& recipe, const Payload& payload, const Network& network);

}  // namespace gradsync
