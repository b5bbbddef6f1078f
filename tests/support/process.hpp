// One process with its output on a pipe.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace gradsync::test {

struct ProcessPlan {
  std::vector<std::string> command;      // a path, or a name found along PATH, and the arguments
  std::vector<std::string> environment;  // "NAME=value"
  int network = -1;                      // descriptor of a network namespace, -1: that of the caller
};

struct Process {
  pid_t pid = -1;
  Descriptor ended;   // pidfd, readable when it has ended
  Descriptor output;  // stdout and stderr, non-blocking
};

// Forks and executes at once; between the two only system calls. The process leads a group of its own, reads nothing,
// and gets SIGKILL when the calling thread ends. Throws std::runtime_error.
Process start_process(const ProcessPlan& plan);

// This process's environment as "NAME=value".
std::vector<std::string> current_environment();

}  // namespace gradsync::test
