#include "comm/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>

#include "base/limits.hpp"
#include "base/random.hpp"
#include "comm/store.hpp"

extern char** environ;

namespace gradsync {
namespace {

constexpr std::array<std::string_view, 5> kOwn = {"GRADSYNC_RANK", "GRADSYNC_SIZE", "GRADSYNC_RENDEZVOUS",
                                                  "GRADSYNC_INTERFACE", "GRADSYNC_OPTIONS"};
constexpr std::string_view kFields = "transport, timeout, start_timeout, lanes, host, fault_seed";
// Where stores of Slurm jobs listen; apart from the ephemeral ports (32768 and up).
constexpr std::uint32_t kSlurmPortFirst = 20000, kSlurmPorts = 10000 - 16;

const std::string* find(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

Status wrong(std::string_view name, std::string_view value, std::string_view expected) {
  return failure(ErrorCode::invalid_argument, "{} is \"{}\", expected {}", name, value, expected);
}

template <class Number>
Status read_number(std::string_view name, std::string_view value, std::string_view expected, Number& out) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  const bool whole = error == std::errc() && end == value.data() + value.size();
  return whole ? Status{} : wrong(name, value, expected);
}

Status read_seconds(std::string_view name, std::string_view value, std::chrono::nanoseconds& out) {
  double seconds = 0;
  constexpr double kMost = 1e8;  // three years; and an int64 of nanoseconds holds it
  if (Status status = read_number(name, value, "seconds", seconds); !status) return status;
  if (!std::isfinite(seconds) || seconds <= 0 || seconds > kMost)
    return wrong(name, value, "seconds, above 0 and at most 1e8");
  out = std::chrono::nanoseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1e9)));
  return {};
}

Status read_field(std::string_view name, std::string_view value, Options& options) {
  const std::string full = fmt::format("GRADSYNC_OPTIONS: {}", name);
  if (name == "transport") {
    const auto kind = transport_named(value);
    if (!kind || *kind == TransportKind::loopback)
      return wrong(full, value, "one of auto, shm, tcp (loopback is for threads of one process)");
    return options.transport = *kind, Status{};
  }
  if (name == "timeout") return read_seconds(full, value, options.timeout);
  if (name == "start_timeout") return read_seconds(full, value, options.start_timeout);
  if (name == "host") return options.host = value, Status{};
  if (name == "fault_seed") return read_number(full, value, "a whole number", options.fault_seed);
  if (name == "lanes") {
    const std::string expected = fmt::format("a number from 1 to {}", limits::lanes_max);
    if (Status status = read_number(full, value, expected, options.lanes); !status) return status;
    return options.lanes >= 1 && options.lanes <= limits::lanes_max ? Status{} : wrong(full, value, expected);
  }
  return failure(ErrorCode::invalid_argument, "GRADSYNC_OPTIONS: unknown name \"{}\", known are {}", name, kFields);
}

Status read_fields(std::string_view text, Options& options) {
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    if (entry.empty()) continue;
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos)
      return failure(ErrorCode::invalid_argument, "GRADSYNC_OPTIONS: \"{}\" is not name=value; known names are {}",
                     entry, kFields);
    if (Status status = read_field(entry.substr(0, equals), entry.substr(equals + 1), options); !status) return status;
  }
  return {};
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = text.size();
  for (char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::string bracketed(const std::string& host) { return host.find(':') == std::string::npos ? host : "[" + host + "]"; }

// A job's name as part of a URL.
std::string plain(std::string text) {
  for (char& c : text)
    if (c <= ' ' || c > '~' || c == '/') c = '_';
  return text.substr(0, 150);
}

Status read_rank_and_size(const Environment& environment, const char* rank, const char* size, Options& options) {
  for (const auto& [name, out] : {std::pair{rank, &options.rank}, {size, &options.size}}) {
    const std::string* value = find(environment, name);
    if (!value) return failure(ErrorCode::invalid_argument, "{} is not set", name);
    if (Status status = read_number(name, *value, "a whole number", *out); !status) return status;
  }
  if (options.size < 1 || options.size > limits::ranks_max)
    return wrong(size, *find(environment, size), fmt::format("a whole number from 1 to {}", limits::ranks_max));
  if (options.rank < 0 || options.rank >= options.size)
    return wrong(rank, *find(environment, rank),
                 fmt::format("0 to {} as {} is {}", options.size - 1, size, options.size));
  return {};
}

Result<bool> from_torchrun(const Environment& environment, Options& options) {
  const std::string* address = find(environment, "MASTER_ADDR");
  const std::string* port = find(environment, "MASTER_PORT");
  if (!address || !port || !find(environment, "RANK") || !find(environment, "WORLD_SIZE")) return false;
  if (Status status = read_rank_and_size(environment, "RANK", "WORLD_SIZE", options); !status) return status;
  std::uint16_t number = 0;
  if (Status status = read_number("MASTER_PORT", *port, "a port from 1 to 65535", number); !status) return status;
  const std::string* run = find(environment, "TORCHELASTIC_RUN_ID");
  const std::string* restart = find(environment, "TORCHELASTIC_RESTART_COUNT");
  // torchrun's own store may hold the port itself: rank 0 takes the next free one.
  options.rendezvous = fmt::format("host0://{}:{}/torch-{}-{}", bracketed(*address), number, plain(run ? *run : "none"),
                                   restart ? plain(*restart) : "0");
  return true;
}

// The launcher's host, from "12345.0;tcp://192.0.2.2,10.0.0.2:49013;tcp6://…".
std::string hnp_host(const std::string& uri) {
  const auto start = uri.find("tcp://");
  if (start == std::string::npos) return {};
  const auto end = uri.find_first_of(",:", start + 6);
  return uri.substr(start + 6, end - start - 6);
}

Result<bool> from_open_mpi(const Environment& environment, Options& options) {
  if (!find(environment, "OMPI_COMM_WORLD_RANK")) return false;
  if (Status status = read_rank_and_size(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", options); !status)
    return status;
  std::string job;  // numbers alone are used again by later jobs; the key of the fabric is random
  for (const char* name :
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_precondition_transports"})
    if (const std::string* value = find(environment, name)) job += *value + ";";
  if (job.empty())
    return failure(ErrorCode::invalid_argument,
                   "OMPI_COMM_WORLD_RANK is set, but neither PMIX_NAMESPACE nor OMPI_MCA_orte_hnp_uri");
  const std::uint64_t id = hash_text(job);
  const std::string* local_size = find(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local_size && *local_size == std::to_string(options.size)) {
    options.rendezvous = fmt::format("unix-abstract://gradsync-ompi-{}-{:016x}/ompi-{:016x}", ::geteuid(), id, id);
    return true;
  }
  const std::string* address = find(environment, "MASTER_ADDR");
  const std::string* uri = find(environment, "OMPI_MCA_orte_hnp_uri");
  const std::string host = address ? *address : uri ? hnp_host(*uri) : std::string();
  if (host.empty())
    return failure(ErrorCode::invalid_argument,
                   "Open MPI started {} ranks on several hosts: set MASTER_ADDR to the host of rank 0", options.size);
  options.rendezvous =
      fmt::format("host0://{}:{}/ompi-{:016x}", bracketed(host), kSlurmPortFirst + id % kSlurmPorts, id);
  return true;
}

Result<bool> from_mpich(const Environment& environment, Options& options) {
  const std::string* fd = find(environment, "PMI_FD");
  const std::string* port = find(environment, "PMI_PORT");
  const std::string* local_size = find(environment, "MPI_LOCALNRANKS");
  if (!find(environment, "PMI_RANK") || (!fd && !port)) return false;
  if (!local_size && find(environment, "SLURM_PROCID")) return false;  // Slurm's own PMI-2, another protocol
  if (Status status = read_rank_and_size(environment, "PMI_RANK", "PMI_SIZE", options); !status) return status;
  const std::uint64_t proxy = ancestor_identity("hydra_pmi_proxy");
  if (proxy != 0 && local_size && *local_size == std::to_string(options.size)) {
    // All ranks descend from one process of the launcher, which names them without a word of PMI.
    options.rendezvous =
        fmt::format("unix-abstract://gradsync-mpich-{}-{:016x}/mpich-{:016x}", ::geteuid(), proxy, proxy);
  } else if (fd) {
    std::uint16_t number = 0;
    if (Status status = read_number("PMI_FD", *fd, "a descriptor's number", number); !status) return status;
    options.rendezvous = fmt::format("pmi://fd:{}", number);
  } else {
    const std::string* id = find(environment, "PMI_ID");
    options.rendezvous = fmt::format("pmi://{}/{}", *port, id ? *id : std::to_string(options.rank));
  }
  return true;
}

const char* slurm_size(const Environment& environment) {
  return find(environment, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

Result<bool> from_slurm(const Environment& environment, Options& options) {
  const std::string* nodes = find(environment, "SLURM_STEP_NODELIST");
  if (!nodes) nodes = find(environment, "SLURM_NODELIST");
  const std::string* job = find(environment, "SLURM_JOB_ID");
  if (!find(environment, "SLURM_PROCID") || !nodes || !job) return false;
  if (Status status = read_rank_and_size(environment, "SLURM_PROCID", slurm_size(environment), options); !status)
    return status;
  const std::string* step = find(environment, "SLURM_STEP_ID");
  const std::string name = plain(fmt::format("slurm-{}-{}", *job, step ? *step : "0"));
  const std::string host = first_slurm_host(*nodes);
  if (host.empty()) return wrong("SLURM_STEP_NODELIST", *nodes, "a list of hosts");
  options.rendezvous = fmt::format("host0://{}:{}/{}", host, kSlurmPortFirst + hash_text(name) % kSlurmPorts, name);
  return true;
}

// What a launcher sets, each with a variable that does as well.
struct LauncherNames {
  const char *rank, *size;
  std::array<std::array<const char*, 2>, 2> rest;
};

// Error if the variables speak of several ranks, but are not all that a launcher sets: each rank would go on alone.
Status check_not_half(const Environment& environment, const LauncherNames& names) {
  std::int64_t size = 1, rank = 0;
  const std::string *size_text = find(environment, names.size), *rank_text = find(environment, names.rank);
  if (size_text)
    if (Status status = read_number(names.size, *size_text, "a whole number", size); !status) return status;
  // Others may use a name like RANK for something else than a number.
  if (rank_text && !read_number(names.rank, *rank_text, "", rank)) rank = 0;
  if (!size_text && rank > 0)
    return failure(ErrorCode::invalid_argument, "{} is \"{}\" but {} is not set", names.rank, *rank_text, names.size);
  if (size <= 1) return {};
  const auto missing = [&](const char* name) {
    return failure(ErrorCode::invalid_argument, "{} is \"{}\" but {} is not set", names.size, *size_text, name);
  };
  if (!rank_text) return missing(names.rank);
  for (const auto& [name, other] : names.rest)
    if (name && !find(environment, name) && !find(environment, other)) return missing(name);
  return {};
}

Status check_not_half(const Environment& environment) {
  std::vector<LauncherNames> launchers{
      {"RANK", "WORLD_SIZE", {{{"MASTER_ADDR", "MASTER_ADDR"}, {"MASTER_PORT", "MASTER_PORT"}}}},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}},
      {"PMI_RANK", "PMI_SIZE", {{{"PMI_FD", "PMI_PORT"}}}}};
  // An allocation sets the size for whatever runs in it, also by hand; a rank only srun and sbatch.
  if (find(environment, "SLURM_PROCID"))
    launchers.push_back({"SLURM_PROCID",
                         slurm_size(environment),
                         {{{"SLURM_JOB_ID", "SLURM_JOB_ID"}, {"SLURM_STEP_NODELIST", "SLURM_NODELIST"}}}});
  for (const LauncherNames& names : launchers)
    if (Status status = check_not_half(environment, names); !status) return status;
  return {};
}

// Whether a launcher's variables filled the options.
Result<bool> from_launchers(const Environment& environment, Options& options) {
  for (auto* launcher : {from_torchrun, from_open_mpi, from_mpich, from_slurm}) {
    auto found = launcher(environment, options);
    if (!found || *found) return found;
  }
  return false;
}

// Rank and size of gradsync's own variables over those of a launcher.
Status read_own(const Environment& environment, Options& options) {
  const std::string *rank = find(environment, "GRADSYNC_RANK"), *size = find(environment, "GRADSYNC_SIZE");
  if (rank)
    if (Status status = read_number("GRADSYNC_RANK", *rank, "a whole number from 0", options.rank); !status)
      return status;
  if (size)
    if (Status status = read_number("GRADSYNC_SIZE", *size, "a whole number from 1", options.size); !status)
      return status;
  if (rank && options.rank < 0) return wrong("GRADSYNC_RANK", *rank, "a whole number from 0");
  if (size && (options.size <= 0 || options.size > limits::ranks_max))
    return wrong("GRADSYNC_SIZE", *size, fmt::format("a whole number from 1 to {}", limits::ranks_max));
  if (rank && options.size < 0)
    return failure(ErrorCode::invalid_argument, "GRADSYNC_SIZE is not set (GRADSYNC_RANK is {})", *rank);
  if (size && options.rank < 0)
    return failure(ErrorCode::invalid_argument, "GRADSYNC_RANK is not set (GRADSYNC_SIZE is {})", *size);
  if (rank && options.rank >= options.size)
    return wrong("GRADSYNC_RANK", *rank, fmt::format("0 to {} in a world of {}", options.size - 1, options.size));
  if (size && options.rank >= options.size)
    return wrong("GRADSYNC_SIZE", *size, fmt::format("above this worker's rank, {}", options.rank));
  return {};
}

}  // namespace

std::string known_option_names() { return std::string(kFields); }

std::string first_slurm_host(const std::string& list) {
  const auto end = list.find_first_of(",[");
  std::string host = list.substr(0, end);
  if (end == std::string::npos || list[end] == ',') return host;
  // "node[07-12,15]-ib": the first number of the bracket as it is written, and what follows the bracket.
  const auto number_end = list.find_first_of("-,]", end + 1);
  const auto bracket_end = list.find(']', end);
  if (number_end == std::string::npos || bracket_end == std::string::npos) return {};
  host += list.substr(end + 1, number_end - end - 1);
  const std::string rest = list.substr(bracket_end + 1);
  return rest.empty() || rest[0] == ',' ? host : first_slurm_host(host + rest);
}

Result<Options> options_from(const Environment& environment, std::vector<std::string>& warnings) {
  Options options;
  for (const auto& [name, value] : environment)
    if (name.starts_with("GRADSYNC_") && std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end())
      warnings.push_back(
          fmt::format("gradsync: unknown environment variable {} (known: {})", name, fmt::join(kOwn, ", ")));
  const bool rank = find(environment, "GRADSYNC_RANK"), size = find(environment, "GRADSYNC_SIZE");
  const std::string* rendezvous = find(environment, "GRADSYNC_RENDEZVOUS");
  if (!rank || !size || !rendezvous) {
    const auto found = from_launchers(environment, options);
    if (!found) return found.status();
    if (!*found && !rank && !size && !rendezvous)
      if (Status status = check_not_half(environment); !status) return status;
  }
  if (Status status = read_own(environment, options); !status) return status;
  if (rendezvous) options.rendezvous = *rendezvous;
  if (const std::string* interface = find(environment, "GRADSYNC_INTERFACE")) options.interface = *interface;
  if (const std::string* fields = find(environment, "GRADSYNC_OPTIONS"))
    if (Status status = read_fields(*fields, options); !status) return status;
  return options;
}

namespace {

Environment environment_of_process() {
  Environment environment;
  for (char** at = environ; at && *at; ++at) {
    const std::string_view entry = *at;
    if (const auto equals = entry.find('='); equals != std::string_view::npos)
      environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

Options options_or_throw(const Environment& environment) {
  std::vector<std::string> warnings;
  auto options = options_from(environment, warnings);
  for (const std::string& warning : warnings) std::fprintf(stderr, "%s\n", warning.c_str());
  throw_if_failed(options.status());
  return *std::move(options);
}

}  // namespace

Options Options::from_environment() { return options_or_throw(environment_of_process()); }

Options Options::settings_from_environment() {
  Environment settings = environment_of_process();
  std::erase_if(settings, [](const auto& entry) {
    const std::string& name = entry.first;
    return !name.starts_with("GRADSYNC_") || name == "GRADSYNC_RANK" || name == "GRADSYNC_SIZE" ||
           name == "GRADSYNC_RENDEZVOUS";
  });
  return options_or_throw(settings);
}

}  // namespace gradsync
