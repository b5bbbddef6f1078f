#include "cli/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace gradsync::cli {
namespace {

// Rank, size and meeting point as gradsync, torchrun, Open MPI, MPICH, PMIx and Slurm name them.
constexpr auto stale_names = std::to_array<std::string_view>(
    {"GRADSYNC_RANK", "GRADSYNC_SIZE", "GRADSYNC_RENDEZVOUS", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_PROCID", "SLURM_LOCALID",
     "SLURM_NTASKS", "SLURM_NPROCS"});
constexpr auto stale_prefixes =
    std::to_array<std::string_view>({"TORCHELASTIC_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_", "PALS_"});

std::string_view name_in(std::string_view assignment) { return assignment.substr(0, assignment.find('=')); }

bool is_stale(std::string_view name) {
  return std::ranges::find(stale_names, name) != stale_names.end() ||
         std::ranges::any_of(stale_prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void set(std::vector<std::string>& assignments, std::string assignment) {
  std::erase_if(assignments, [&](const std::string& held) { return name_in(held) == name_in(assignment); });
  assignments.push_back(std::move(assignment));
}

std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& held : environment)
    if (name_in(held) == name) return held.substr(std::min(name.size() + 1, held.size()));
  return "";
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

Result<std::vector<std::string>> worker_environment(const std::vector<std::string>& inherited,
                                                    const WorkerSettings& settings) {
  std::vector<std::string> environment;
  for (const std::string& held : inherited)
    if (!is_stale(name_in(held))) environment.push_back(held);
  std::vector<std::string> options = split(value_of(environment, "GRADSYNC_OPTIONS"));
  for (const std::string& option : settings.options) {
    if (option.find('=') == std::string::npos || option.starts_with('=') || option.find(',') != std::string::npos)
      return failure(ErrorCode::invalid_argument, "option '{}' is not of the form key=value", option);
    set(options, option);
  }
  if (!settings.transport.empty()) set(options, "transport=" + settings.transport);
  if (!options.empty()) set(environment, fmt::format("GRADSYNC_OPTIONS={}", fmt::join(options, ",")));
  if (!settings.interface.empty()) set(environment, "GRADSYNC_INTERFACE=" + settings.interface);
  return environment;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> all;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) all.emplace_back(*at);
  return all;
}

}  // namespace gradsync::cli
