#include <atomic>
#include <deque>
#include <nlohmann/json.hpp>
#include <thread>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/launcher.hpp"
#include "cli/markdown.hpp"
#include "verify/table.hpp"

namespace gradsync::cli {
namespace {

constexpr std::int64_t threads_max = 256;
constexpr double elements_a_rank = 8;  // of the whole message, as in prove_row's default

struct Job {
  const CatalogueEntry* entry = nullptr;
  std::uint32_t world = 1;
  ProofRow row = {};
  double seconds = 0;
  std::atomic<bool> done = false;
};

bool point_to_point(Collective collective) { return collective == Collective::send || collective == Collective::recv; }

// Large worlds only where the number of steps allows it, unless the algorithm is asked for by name.
bool is_wanted(const CatalogueEntry& entry, std::uint32_t world, const ProveArguments& arguments) {
  if (!arguments.algorithm.empty() && name_of(entry.algorithm) != arguments.algorithm) return false;
  if (!arguments.collective.empty() && name_of(entry.collective) != arguments.collective) return false;
  if (point_to_point(entry.collective)) return world == 2;
  return world <= limits::proof_sets_ranks_max || entry.log_step || !arguments.algorithm.empty();
}

Result<std::deque<Job>> jobs_of(const ProveArguments& arguments) {
  auto worlds = read_worlds(arguments.ranks);
  if (!worlds) return worlds.status();
  if (!arguments.algorithm.empty()) {
    auto algorithm = read_algorithm(arguments.algorithm);
    if (!algorithm) return algorithm.status();
    if (*algorithm == Algorithm::automatic)
      return failure(ErrorCode::invalid_argument, "auto is a choice among algorithms, not one; known: {}",
                     real_algorithms());
  }
  if (!arguments.collective.empty()) {
    auto collective = read_collective(arguments.collective);
    if (!collective) return collective.status();
  }
  if (arguments.threads < 1 || arguments.threads > threads_max)
    return failure(ErrorCode::invalid_argument, "--threads is {}, expected 1 to {}", arguments.threads, threads_max);
  std::deque<Job> jobs;
  for (const CatalogueEntry& entry : catalogue())
    for (const std::uint32_t world : *worlds)
      if (is_wanted(entry, world, arguments)) {
        Job& job = jobs.emplace_back();
        job.entry = &entry;
        job.world = world;
      }
  if (jobs.empty())
    return failure(ErrorCode::invalid_argument, "no {} of {} for {} ranks",
                   arguments.algorithm.empty() ? "algorithm" : arguments.algorithm,
                   arguments.collective.empty() ? "any collective" : arguments.collective, arguments.ranks);
  return jobs;
}

// Takes jobs until none is left.
void work(std::deque<Job>& jobs, std::atomic<std::size_t>& next) {
  for (std::size_t i; (i = next++) < jobs.size();) {
    Job& job = jobs[i];
    const TimePoint start = std::chrono::steady_clock::now();
    job.row = prove_row(*job.entry, job.world);
    job.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    job.done = true;
    job.done.notify_all();
  }
}

void print_json(const Job& job) {
  const ProofCounts& c = job.row.counts;
  nlohmann::ordered_json object{{"collective", name_of(job.row.collective)},
                                {"algorithm", name_of(job.row.algorithm)},
                                {"ranks", job.world},
                                {"variants", job.row.variants},
                                {"proven", job.row.ok},
                                {"steps", c.steps},
                                {"messages", c.messages},
                                {"messages_max", c.messages_max},
                                {"sent", c.sent},
                                {"sent_max", c.sent_max},
                                {"reduced", c.reduced},
                                {"reduced_max", c.reduced_max},
                                {"staging_max", job.row.staging_max},
                                {"window_min", job.row.window_min},
                                {"seconds", job.seconds}};
  if (!job.row.ok) object["error"] = job.row.message;
  fmt::print("{}\n", object.dump());
}

// All worlds of one catalogue entry.
struct Summary {
  std::size_t worlds = 0, proven = 0;
  std::uint64_t window = 1;
  double seconds = 0;
  const Job* largest = nullptr;
  const Job* failed = nullptr;

  void add(const Job& job) {
    ++worlds;
    proven += job.row.ok ? 1 : 0;
    seconds += job.seconds;
    window = std::max(window, job.row.window_min);
    if (largest == nullptr || job.world > largest->world) largest = &job;
    if (!job.row.ok && failed == nullptr) failed = &job;
  }
};

void print_heading() {
  fmt::print("{:<15} {:<19} {:>9} {:>7} {:>6} {:>9} {:>9} {:>11} {:>10} {:>6} {:>7}\n", "collective", "algorithm",
             "proven", "ranks", "steps", "msgs/rank", "sent/rank", "reduce/rank", "staging", "window", "seconds");
}

void print_summary(const Summary& s) {
  const ProofRow& row = s.largest->row;
  const double whole = elements_a_rank * s.largest->world;
  const auto share = [&](std::uint64_t elements) {
    return fmt::format("{:.3f} S", static_cast<double>(elements) / whole);
  };
  fmt::print("{:<15} {:<19} {:>9} {:>7} {:>6} {:>9} {:>9} {:>11} {:>10} {:>6} {:>7.2f}\n", name_of(row.collective),
             name_of(row.algorithm), fmt::format("{}/{}", s.proven, s.worlds), s.largest->world, row.counts.steps,
             row.counts.messages_max, share(row.counts.sent_max), share(row.counts.reduced_max), share(row.staging_max),
             s.window, s.seconds);
  if (s.failed != nullptr) fmt::print("  NOT PROVEN: {}\n", s.failed->row.message);
}

// Prints rows in order while they are being proven.
bool report(std::deque<Job>& jobs, bool json) {
  std::size_t proven = 0;
  double seconds = 0;
  Summary summary;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    job.done.wait(false);
    proven += job.row.ok ? 1 : 0;
    seconds += job.seconds;
    summary.add(job);
    if (json) print_json(job);
    if (i + 1 < jobs.size() && jobs[i + 1].entry == job.entry) continue;
    if (!json) print_summary(summary);
    summary = {};
    std::fflush(stdout);
  }
  if (!json)
    fmt::print(
        "\n{} of {} proven in {:.1f} s of computing. Counts are those of the largest world; S is the whole message.\n",
        proven, jobs.size(), seconds);
  return proven == jobs.size();
}

}  // namespace

int prove_command(const ProveArguments& arguments) {
  if (arguments.markdown) {
    fmt::print("{}", algorithms_page());
    return 0;
  }
  auto jobs = jobs_of(arguments);
  if (!jobs) return complain("prove", jobs.status(), exit_usage);
  if (!arguments.json) print_heading();
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> threads;
  for (std::int64_t i = 0; i < arguments.threads; ++i) threads.emplace_back([&] { work(*jobs, next); });
  return report(*jobs, arguments.json) ? 0 : 1;
}

}  // namespace gradsync::cli
