#include <unistd.h>

#include <array>
#include <cstdlib>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "cli/arguments.hpp"
#include "cli/bench_arguments.hpp"
#include "cli/guard.hpp"
#include "cli/launcher.hpp"
#include "cli/meeting.hpp"

namespace gradsync::cli {
namespace {

constexpr std::int64_t iterations_max = 10'000'000;

bool point_to_point(Collective c) { return c == Collective::send || c == Collective::recv; }

Result<std::vector<Algorithm>> read_algorithms(Collective collective, const std::string& name) {
  std::vector<Algorithm> algorithms;
  if (name == "all") {
    for (const CatalogueEntry& entry : catalogue())
      if (entry.collective == collective) algorithms.push_back(entry.algorithm);
    return algorithms;
  }
  auto algorithm = read_algorithm(name);
  if (!algorithm) return algorithm.status();
  if (*algorithm != Algorithm::automatic && find_in_catalogue(collective, *algorithm) == nullptr)
    return failure(ErrorCode::invalid_argument, "{} has no algorithm '{}'; known: auto, all, {}", name_of(collective),
                   name, known_algorithms_of(collective));
  return std::vector<Algorithm>{*algorithm};
}

Status check_numbers(const BenchArguments& arguments) {
  if (arguments.ranks < 1 || arguments.ranks > limits::launch_ranks_max)
    return failure(ErrorCode::invalid_argument, "-n is {}, expected 1 to {} workers", arguments.ranks,
                   limits::launch_ranks_max);
  if (arguments.iterations < 0 || arguments.iterations > iterations_max)
    return failure(ErrorCode::invalid_argument, "--iterations is {}, expected 1 to {}", arguments.iterations,
                   iterations_max);
  if (arguments.segments < 0 || arguments.segments > limits::segments_max)
    return failure(ErrorCode::invalid_argument, "--segments is {}, expected 1 to {}, or 0 to have them chosen",
                   arguments.segments, limits::segments_max);
  return read_timeout(arguments.timeout_s).status();
}

Status check_combination(const BenchPlan& plan, bool in_place) {
  if (has_operator(plan.collective) && !supports(plan.dtype, plan.op))
    return failure(ErrorCode::invalid_argument, "operator {} is not defined for {}", name_of(plan.op),
                   name_of(plan.dtype));
  if (in_place && (plan.collective == Collective::all_to_all || point_to_point(plan.collective)))
    return failure(ErrorCode::invalid_argument, "{} does not work in place", name_of(plan.collective));
  for (const Algorithm algorithm : plan.algorithms)
    if (!plan.shards.empty() && algorithm != Algorithm::two_shot && algorithm != Algorithm::hierarchical)
      return failure(ErrorCode::invalid_argument, "--shards is for --algorithm two_shot or hierarchical, not {}",
                     name_of(algorithm));
  if (plan.transport == TransportKind::loopback)
    return failure(ErrorCode::invalid_argument,
                   "transport loopback is for threads of one process; processes use auto, shm or tcp");
  return {};
}

// The same arguments for a worker.
std::vector<std::string> worker_command(const std::string& program, const BenchArguments& a) {
  std::vector<std::string> command{program,
                                   "bench-worker",
                                   a.collective,
                                   "-n",
                                   std::to_string(a.ranks),
                                   "--bytes",
                                   a.bytes,
                                   "--dtype",
                                   a.dtype,
                                   "--op",
                                   a.op,
                                   "--algorithm",
                                   a.algorithm,
                                   "--transport",
                                   a.transport,
                                   "--iterations",
                                   std::to_string(a.iterations)};
  if (a.segments != 0) command.insert(command.end(), {"--segments", std::to_string(a.segments)});
  if (!a.shards.empty()) command.insert(command.end(), {"--shards", a.shards});
  if (a.tune) command.emplace_back("--tune");
  if (a.explain) command.emplace_back("--explain");
  if (a.in_place) command.emplace_back("--in-place");
  if (a.registered) command.emplace_back("--registered");
  if (a.json) command.emplace_back("--json");
  return command;
}

Result<std::string> this_program() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length > 0 && static_cast<std::size_t>(length) < path.size())
    return std::string(path.data(), static_cast<std::size_t>(length));
  return failure(ErrorCode::unavailable, "cannot read /proc/self/exe: {}", errno_text(errno));
}

int launch_workers(Launch launch, int lifeline) {
  auto meeting = hold_meeting(local_meeting());
  if (!meeting) return complain("bench", meeting.status(), exit_launcher);
  launch.rendezvous = meeting->rendezvous;
  launch.lifeline = lifeline;
  return run_workers(launch).exit_code;
}

}  // namespace

bool has_operator(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

Result<BenchPlan> read_bench(const BenchArguments& arguments) {
  Status status = check_numbers(arguments);
  if (!status.ok()) return status;
  auto collective = read_collective(arguments.collective);
  if (!collective) return collective.status();
  auto algorithms = read_algorithms(*collective, arguments.algorithm);
  if (!algorithms) return algorithms.status();
  auto transport = read_transport(arguments.transport);
  if (!transport) return transport.status();
  auto dtype = read_dtype(arguments.dtype);
  if (!dtype) return dtype.status();
  auto op = read_reduce_op(arguments.op);
  if (!op) return op.status();
  auto bytes = read_bytes_list(arguments.bytes);
  if (!bytes) return bytes.status();
  BenchPlan plan{*collective,
                 *algorithms,
                 *transport,
                 *dtype,
                 *op,
                 *bytes,
                 static_cast<std::uint32_t>(arguments.ranks),
                 static_cast<std::uint32_t>(arguments.iterations),
                 static_cast<std::uint32_t>(arguments.segments),
                 {}};
  if (plan.collective == Collective::barrier) plan.bytes = {0};
  if (!arguments.shards.empty()) {
    auto shards = read_shards(arguments.shards);
    if (!shards) return shards.status();
    plan.shards = std::move(*shards);
  }
  status = check_combination(plan, arguments.in_place);
  if (!status.ok()) return status;
  return plan;
}

int bench_command(const BenchArguments& arguments) {
  auto plan = read_bench(arguments);
  if (!plan) return complain("bench", plan.status(), exit_usage);
  if (std::getenv("GRADSYNC_RANK") != nullptr) {
    const char* size = std::getenv("GRADSYNC_SIZE");
    if (arguments.ranks_given && size != nullptr && std::to_string(arguments.ranks) != size)
      return complain("bench",
                      failure(ErrorCode::invalid_argument,
                              "-n is {}, but this is one of {} workers that were started (GRADSYNC_SIZE); leave -n out",
                              arguments.ranks, size),
                      exit_usage);
    return bench_worker(arguments);
  }
  auto program = this_program();
  if (!program) return complain("bench", program.status(), exit_launcher);
  WorkerSettings settings;
  settings.transport = arguments.transport;
  auto environment = worker_environment(current_environment(), settings);
  if (!environment) return complain("bench", environment.status(), exit_usage);
  Launch launch;
  launch.command = worker_command(*program, arguments);
  launch.environment = std::move(*environment);
  launch.workers = launch.size = plan->ranks;
  launch.timeout = *read_timeout(arguments.timeout_s);  // checked with the other numbers
  launch.name = "gradsync bench";
  launch.prefix = false;
  launch.handle_signals = true;
  return guarded([&](int lifeline) { return launch_workers(launch, lifeline); });
}

}  // namespace gradsync::cli
