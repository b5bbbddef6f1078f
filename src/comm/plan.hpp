// From a call to a schedule: the choice of the algorithm, and the schedules that were made before.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.hpp"
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
  // Throws invalid_argument if the collective has no such algorithm. The same on every rank for equal wishes. Ports do not
  // matter here: a call is submitted at a moment of its rank's own, and they change with what was measured.
  std::shared_ptr<const Schedule> plan(const Wanted& wanted);
  // The same where a call's turn has come, by the ports as of now: equal on all ranks after the same collectives.
  Result<std::shared_ptr<const Schedule>> plan_in_turn(const Wanted& wanted);

  // From now on choices are made for this network. All ranks pass equal values, between the same two collectives.
  void set_network(const Network& network);
  // In the turn of a collective. A message costs the processor `overhead_s` at least where ports differ.
  void set_ports(std::vector<HostPort> ports, double overhead_s);
  Network network();

 private:
  enum class Moment : std::uint8_t { submission, turn };
  struct Chosen {
    Collective collective;
    Moment moment;
    int magnitude;  // of the bytes: position of the highest bit
    Algorithm algorithm;
    std::uint32_t segments;
    std::vector<std::uint32_t> shards = {};
  };
  // Holding mutex_.
  Result<Chosen> choose(const Wanted& wanted, Moment moment);
  Result<std::shared_ptr<const Schedule>> plan(const Wanted& wanted, Moment moment);
  bool at_the_board(const Wanted& wanted) const;
  bool whole_host_in_memory(const Wanted& wanted) const;

  const std::uint32_t rank_, size_;
  const std::vector<std::uint32_t> hosts_;
  bool in_memory_ = false;  // all ranks on one host, and not over tcp
  std::mutex mutex_;
  Network network_;        // its ports count in turn only
  double overhead_s_ = 0;  // beside them
  std::vector<Chosen> choices_;
  std::vector<std::shared_ptr<const Schedule>> schedules_;  // the most recently used last
};

// Of uneven shards, for the fingerprint of a call; 0 of none.
std::uint64_t hash_of_shards(std::span<const std::uint32_t> shards);

// What is assumed of a network that nobody has measured: a current server's memory, and TCP through its kernel.
Network assumed_network(TransportKind kind, bool several_hosts);

}  // namespace gradsync
