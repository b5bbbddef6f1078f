// From a call to a schedule: the choice of the algorithm, and the schedules that were made before.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "gradsync/communicator.hpp"
#include "schedule/schedule.hpp"
#include "simulate/network.hpp"

namespace gradsync {

// The schedules of one communicator. Any thread.
class PlanBook {
 public:
  PlanBook(std::uint32_t rank, std::uint32_t size, std::vector<std::uint32_t> hosts, TransportKind kind);

  struct Wanted {
    Collective collective = Collective::all_reduce;
    std::uint32_t root = 0;
    std::uint64_t bytes = 0;  // of the message, or of a block where it has blocks: equal on all ranks
    CallOptions options;
  };
  // Throws invalid_argument if the collective has no such algorithm. The same on every rank for equal wishes.
  std::shared_ptr<const Schedule> plan(const Wanted& wanted);

  // From now on choices are made for this network. All ranks pass equal values, between the same two collectives.
  void set_network(const Network& network);
  Network network();

 private:
  struct Chosen {
    Collective collective;
    int magnitude;  // of the bytes: position of the highest bit
    Algorithm algorithm;
    std::uint32_t segments;
  };
  Chosen choose(const Wanted& wanted);  // holding mutex_
  bool at_the_board(const Wanted& wanted) const;
  bool whole_host_in_memory(const Wanted& wanted) const;

  const std::uint32_t rank_, size_;
  const std::vector<std::uint32_t> hosts_;
  bool in_memory_ = false;  // all ranks on one host, and not over tcp
  std::mutex mutex_;
  Network network_;
  std::vector<Chosen> choices_;
  std::vector<std::shared_ptr<const Schedule>> schedules_;  // the most recently used last
};

// What is assumed of a network that nobody has measured: a current server's memory, and TCP through its kernel.
Network assumed_network(TransportKind kind, bool several_hosts);

}  // namespace gradsync
