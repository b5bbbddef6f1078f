// How a process joins its group: plain settings with their defaults, and the environment that fills them.
//
// gradsync reads five variables of its own, set by `gradsync run`:
//   GRADSYNC_RANK        this worker's rank
//   GRADSYNC_SIZE        number of workers
//   GRADSYNC_RENDEZVOUS  where the workers meet:
//                          tcp://HOST:PORT/JOB        a store that the launcher serves
//                          host0://HOST:PORT/JOB      rank 0 serves it, on the first free port of PORT to PORT+16 of HOST
//                          unix-abstract://NAME/JOB   rank 0 serves it, all ranks on one host
//                          file:///PATH               on a file system that all ranks share
//   GRADSYNC_INTERFACE   network interfaces to use: exact names, names with * and ?, addresses or CIDR, comma-separated
//   GRADSYNC_OPTIONS     the fields below by name: "transport=tcp,timeout=30,lanes=4"
// Any other variable that begins with GRADSYNC_ is reported as unknown. Where they are absent, those of torchrun, Open MPI,
// MPICH (PMI) and Slurm are used. With none of all these the process is a world of one. Half a set that speaks of several
// ranks, such as WORLD_SIZE=2 without MASTER_PORT, is an error: its ranks would each go on alone.
// A program that brings a store of its own for the ranks to meet in fills rank, size and store instead (store.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "gradsync/store.hpp"
#include "gradsync/types.hpp"

namespace gradsync {

struct Options {
  std::int64_t rank = -1;
  std::int64_t size = -1;
  std::string rendezvous;
  // Where the ranks meet, in place of a rendezvous, which is empty then; rank and size are given. Used by `create`
  // only, and not kept.
  std::shared_ptr<KeyValueStore> store;
  // What the ranks that meet there come for, in words of the program ("the group of ranks [0, 2]"), at most 512 bytes. Ranks that
  // come for different things are told what each said, instead of being taken for one group.
  std::string agreement;
  std::string interface;

  TransportKind transport = TransportKind::automatic;  // automatic: shm inside a host, tcp between hosts; not loopback
  std::chrono::nanoseconds timeout{0};                 // of every operation; 0 = limits::timeout_default (300 s)
  std::chrono::nanoseconds start_timeout{0};           // of joining; 0 = limits::rendezvous_timeout_default (60 s)
  std::uint32_t lanes = 1;                             // tcp connections a neighbour, at most 16
  std::string host;  // ranks with different values are taken to be on different hosts; empty: only the probe decides
  std::uint64_t fault_seed = 0;  // not 0: seeded delays on every stream, for tests

  // From the variables above. Throws invalid_argument naming the variable, its value and what was expected; prints one
  // warning line a variable that begins with GRADSYNC_ and is unknown.
  static Options from_environment();
  // The same of GRADSYNC_INTERFACE and GRADSYNC_OPTIONS only: for a program that fills rank, size and store itself.
  static Options settings_from_environment();
};

}  // namespace gradsync
