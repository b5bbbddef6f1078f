// Why auto does a collective as it does: the network it plans for, the candidates and the choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradsync/communicator.hpp"
#include "simulate/choose.hpp"

namespace gradsync::cli {

struct Explanation {
  Collective collective = Collective::all_reduce;
  std::uint64_t bytes = 0;  // of the message, or of a block
  std::uint32_t ranks = 1;
  std::vector<std::uint32_t> hosts;  // of each rank
  Network measured, planned;         // just now; what plans are made for
  std::vector<HostPort> ports;       // by host, as measured; none with fewer than three hosts
  std::vector<Choice> candidates;    // the best of each algorithm, best first
  Choice chosen;                     // without a time where no candidate is it
};

// All ranks get the same, for an equal `measured`.
Explanation explained(Communicator& communicator, Collective collective, std::uint64_t bytes, const Network& measured);

std::string text_of(const std::vector<Explanation>& explanations);
std::string json_of(const std::vector<Explanation>& explanations);  // an object a line

// Collective: whether all ranks pass the same text.
bool all_say(Communicator& communicator, const std::string& text);

}  // namespace gradsync::cli
