
#include "base/limits.hpp"
#include "base/random.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/guard.hpp"
#include "cli/host_file.hpp"
#include "cli/launcher.hpp"
#include "cli/meeting.hpp"
#include "comm/environment.hpp"

namespace gradsync::cli {
namespace {

// Which ranks run here and where all ranks meet.
struct Share {
  std::uint32_t workers = 1, first_rank = 0, size = 1;
  Meeting meeting;
};

Result<std::uint32_t> checked_count(std::int64_t count) {
  if (count < 1 || count > limits::launch_ranks_max)
    return failure(ErrorCode::invalid_argument, "-n is {}, expected 1 to {} workers", count, limits::launch_ranks_max);
  return static_cast<std::uint32_t>(count);
}

// Equal on all hosts, so that workers of another run that is still at the port are turned away.
std::string job_name(const std::vector<HostLine>& hosts, const std::vector<std::string>& command) {
  std::uint64_t hash = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
    hash = mix64(hash + text.size());
  };
  for (const HostLine& host : hosts) add(host.host), add(std::to_string(host.slots));
  for (const std::string& word : command) add(word);
  return fmt::format("{:016x}", hash);
}

Result<Share> share_of_hosts(const RunArguments& arguments) {
  auto hosts = read_host_file(arguments.host_file);
  if (!hosts) return hosts.status();
  const std::uint64_t size = slots_in_all(*hosts);
  if (size > limits::ranks_max)
    return failure(ErrorCode::invalid_argument, "{}: {} slots in all, at most {}", arguments.host_file, size,
                   limits::ranks_max);
  if (arguments.workers >= 0 && static_cast<std::uint64_t>(arguments.workers) != size)
    return failure(ErrorCode::invalid_argument, "-n is {}, but the hosts of {} have {} slots in all", arguments.workers,
                   arguments.host_file, size);
  if (arguments.port < 1 || arguments.port > 65535)
    return failure(ErrorCode::invalid_argument, "--port is {}, expected 1 to 65535", arguments.port);
  if (arguments.host_index >= static_cast<std::int64_t>(hosts->size()) || arguments.host_index < -1)
    return failure(ErrorCode::invalid_argument, "--host-index is {}, expected 0 to {}", arguments.host_index,
                   hosts->size() - 1);
  std::size_t here = static_cast<std::size_t>(arguments.host_index);
  if (arguments.host_index < 0) {
    auto found = find_this_host(*hosts);
    if (!found) return found.status();
    here = *found;
  }
  Share share;
  share.size = static_cast<std::uint32_t>(size);
  share.workers = (*hosts)[here].slots;
  for (std::size_t i = 0; i < here; ++i) share.first_rank += (*hosts)[i].slots;
  share.meeting = {(*hosts)[0].host, static_cast<std::uint16_t>(arguments.port), job_name(*hosts, arguments.command),
                   here == 0};
  return share;
}

Result<Share> share_of_one_host(const RunArguments& arguments) {
  if (arguments.workers == -1)
    return failure(ErrorCode::invalid_argument, "how many workers? give -n N or --host-file FILE");
  auto workers = checked_count(arguments.workers);
  if (!workers) return workers.status();
  Share share;
  share.workers = share.size = *workers;
  share.meeting = local_meeting();
  return share;
}

Status check_command(const std::vector<std::string>& command) {
  if (command.empty())
    return failure(ErrorCode::invalid_argument, "which program? as in: gradsync run -n 4 -- ./program its arguments");
  if (command[0].starts_with('-'))
    return failure(ErrorCode::invalid_argument, "unknown option '{}'; gradsync run --help lists what is known",
                   command[0]);
  return {};
}

// What every worker would otherwise report by itself: unknown names and values in the options.
Status check_environment(const std::vector<std::string>& assignments) {
  Environment variables{
      {"GRADSYNC_RANK", "0"}, {"GRADSYNC_SIZE", "1"}, {"GRADSYNC_RENDEZVOUS", "tcp://127.0.0.1:1/job"}};
  for (const std::string& held : assignments) {
    const std::size_t end = held.find('=');
    if (held.starts_with("GRADSYNC_") && end != std::string::npos)
      variables[held.substr(0, end)] = held.substr(end + 1);
  }
  std::vector<std::string> warnings;  // the workers print them
  return options_from(variables, warnings).status();
}

// Every worker is a process: threads of one process need no launcher.
Status check_transport(const std::string& name) {
  if (name.empty()) return {};
  auto transport = read_transport(name);
  if (transport.ok() && *transport == TransportKind::loopback)
    return failure(ErrorCode::invalid_argument,
                   "transport loopback is for threads of one process; processes use auto, shm or tcp");
  return transport.status();
}

// In the guarded child: the store, if it is held here, and the workers.
int launch_here(Launch launch, const Meeting& meeting, int lifeline) {
  auto held = hold_meeting(meeting);
  if (!held) return complain("run", held.status(), exit_launcher);
  launch.rendezvous = held->rendezvous;
  launch.lifeline = lifeline;
  return run_workers(launch).exit_code;
}

}  // namespace

int run_command(const RunArguments& arguments) {
  Status status = check_command(arguments.command);
  if (!status.ok()) return complain("run", status, exit_usage);
  std::optional<Nanoseconds> timeout;
  if (arguments.timeout_s != 0) {
    auto read = read_timeout(arguments.timeout_s);
    if (!read) return complain("run", read.status(), exit_usage);
    timeout = *read;
  }
  auto share = arguments.host_file.empty() ? share_of_one_host(arguments) : share_of_hosts(arguments);
  if (!share) return complain("run", share.status(), exit_usage);
  auto environment = worker_environment(current_environment(), arguments.settings);
  if (!environment) return complain("run", environment.status(), exit_usage);
  status = check_transport(arguments.settings.transport);
  if (status.ok()) status = check_environment(*environment);
  if (!status.ok()) return complain("run", status, exit_usage);
  Launch launch;
  launch.command = arguments.command;
  launch.environment = std::move(*environment);
  launch.workers = share->workers;
  launch.first_rank = share->first_rank;
  launch.size = share->size;
  launch.prefix = arguments.prefix;
  launch.handle_signals = true;
  launch.timeout = timeout;
  return guarded([&](int lifeline) { return launch_here(launch, share->meeting, lifeline); });
}

}  // namespace gradsync::cli
