// Options from a set of environment variables: gradsync's own, else those of torchrun, Open MPI, MPICH or Slurm.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "gradsync/options.hpp"

namespace gradsync {

using Environment = std::map<std::string, std::string>;

// `warnings` gets one line for each variable that begins with GRADSYNC_ and is unknown. Launchers give rank, size and
// rendezvous; whichever of GRADSYNC_RANK, _SIZE, _RENDEZVOUS is set takes precedence.
Result<Options> options_from(const Environment& environment, std::vector<std::string>& warnings);

// The names that GRADSYNC_OPTIONS may give: "transport, timeout, …".
std::string known_option_names();

// The first host of a Slurm list: "node[07-12,15],login" -> "node07".
std::string first_slurm_host(const std::string& list);

}  // namespace gradsync
