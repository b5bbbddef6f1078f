// Starting one worker process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace gradsync::cli {

// How the shells word it: nothing there is 127, there but not to be run is 126.
inline constexpr int exit_not_found = 127;
inline constexpr int exit_not_executable = 126;

// The file that a program name means: the name itself if it holds a '/', else the first match along `path` (as $PATH).
// Errors: out_of_range if there is none, unsupported if it is no executable file; they say what was tried.
Result<std::string> find_program(const std::string& name, const std::string& path);

struct Worker {
  pid_t pid = -1;
  Descriptor process;   // pidfd: readable when it has ended
  Descriptor out, err;  // read ends, non-blocking
};

struct Program {
  std::string file;
  std::vector<std::string> arguments;    // argv, the name first
  std::vector<std::string> environment;  // "NAME=value"
  unsigned long descriptors_soft = 0;    // RLIMIT_NOFILE of the worker; 0 = as here
};

// Starts it in a process group of its own with stdin from /dev/null and no signal blocked. It is killed when the
// thread that calls this ends. Errors: unavailable (no process or descriptor to be had), unsupported (exec failed).
Result<Worker> spawn(const Program& program);

}  // namespace gradsync::cli
