// The environment that the workers get.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"

namespace gradsync::cli {

// What `gradsync run` passes on to the workers' Options. Empty: as the environment says already.
struct WorkerSettings {
  std::string transport;  // a known name
  std::string interface;
  std::vector<std::string> options;  // "key=value"
};

// `inherited` ("NAME=value") without what other launchers said about rank, size and rendezvous, with
// GRADSYNC_INTERFACE and GRADSYNC_OPTIONS of `settings`; options given there replace inherited ones of the same key.
// Error: an option without '=' or with a ','.
Result<std::vector<std::string>> worker_environment(const std::vector<std::string>& inherited,
                                                    const WorkerSettings& settings);

// This process's environment.
std::vector<std::string> current_environment();

}  // namespace gradsync::cli
