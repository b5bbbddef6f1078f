// Starts the workers of one host, watches over them and ends all of them.
//
//   Launch launch;
//   launch.command = {"./train", "--epochs", "3"};
//   launch.workers = launch.size = 4;
//   launch.rendezvous = "tcp://127.0.0.1:29400/job";
//   Outcome outcome = run_workers(launch);
//
// The first failure decides: the rest get SIGTERM, and SIGKILL after limits::launcher_kill_grace. Nothing that descends
// from this process and was started meanwhile outlives the call, not even what left its process group.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace gradsync::cli {

inline constexpr int exit_usage = 2;
inline constexpr int exit_timeout = 124;   // as timeout(1)
inline constexpr int exit_launcher = 125;  // the launcher itself could not work, as timeout(1) and env(1)
inline constexpr int exit_signal = 128;    // plus the signal's number, as the shells

struct Launch {
  std::vector<std::string> command;      // program, searched along PATH, and its arguments
  std::vector<std::string> environment;  // "NAME=value"; without the variables that name rank, size and rendezvous
  std::uint32_t workers = 1;             // started here, ranks first_rank … first_rank + workers - 1
  std::uint32_t first_rank = 0;
  std::uint32_t size = 1;  // of the whole group
  std::string rendezvous;
  std::optional<Nanoseconds> timeout = {};  // of the whole run
  std::string name = "gradsync run";        // begins the launcher's own messages
  bool prefix = true;                       // every line begins with "[rank] "
  bool handle_signals = false;              // SIGINT, SIGTERM, SIGHUP end the run; SIGUSR1 and 2 are passed on
  int out = 1, err = 2;                     // borrowed
  int lifeline = -1;                        // when this pipe ends, everything is killed at once; -1: none
};

struct Outcome {
  int exit_code = 0;
  std::string message;   // why it is not 0; has been written to `err`
  int failed_rank = -1;  // the first that failed, -1 if none did
};

// Blocks until every worker and its descendants have ended and their output is written. The calling thread must not
// start other processes meanwhile.
Outcome run_workers(const Launch& launch);

// "was killed by signal 9 (killed)" or "exited with code 3", from the status of waitpid.
std::string describe_ending(int wait_status);
// The shells' code for it.
int exit_code_of(int wait_status);

}  // namespace gradsync::cli
