// What this group's links and reductions cost, measured on the group itself.
#pragma once

#include "gradsync/communicator.hpp"
#include "simulate/network.hpp"

namespace gradsync {

// Collective: every rank calls it at the same place of its program. Messages go round the ranks of each host, then round
// the hosts (first ranks only), small ones for latency and overhead, large ones for bandwidth; each figure is the median of
// its repetitions and then the largest of all ranks, so that all return the same. Takes milliseconds on one host.
// `assumed` stands in for what the group does not have: links between hosts on one host, any link for one rank.
Network measure_network(Communicator& comm, const Network& assumed);

}  // namespace gradsync
