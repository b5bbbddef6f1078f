#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/bench_arguments.hpp"
#include "cli/bench_case.hpp"
#include "cli/bench_explain.hpp"
#include "comm/inspect.hpp"
#include "comm/measure.hpp"
#include "gradsync/communicator.hpp"
#include "schedule/layouts.hpp"

namespace gradsync::cli {
namespace {

constexpr double seconds_a_size = 0.5;  // of timed calls, if the number of iterations is not given
constexpr std::uint32_t iterations_least = 5, iterations_most = 2000, iterations_warm = 3;

// What rank 0 knows after a case.
struct Line {
  std::uint64_t bytes = 0;
  std::uint32_t iterations = 0;
  std::vector<double> us;  // of each iteration, sorted
  double cpu_s = 0;        // of all ranks
  std::vector<int> wrong;  // ranks
};

double percentile(const std::vector<double>& sorted, double share) {
  const double position = std::ceil(share * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<std::size_t>(std::max(position, 0.0))];
}

bool is_pair(Collective c) { return c == Collective::send || c == Collective::recv; }

double rounded(double us) { return std::round(us * 1000) / 1000; }

// What a link must carry, of each byte of the message (as nccl-tests count it).
double bus_factor(Collective collective, double world) {
  switch (collective) {
    case Collective::all_reduce: return 2 * (world - 1) / world;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::gather:
    case Collective::scatter: return (world - 1) / world;
    case Collective::barrier: return 0;
    default: return world > 1 ? 1 : 0;
  }
}

class Bench {
 public:
  Bench(const BenchPlan& plan, const BenchArguments& arguments, Communicator communicator)
      : plan_(plan),
        arguments_(arguments),
        communicator_(std::move(communicator)) {
    const auto& hosts = communicator_.hosts();
    one_clock_ = std::set(hosts.begin(), hosts.end()).size() <= 1;
  }

  // Whether every result was right, as rank 0 knows.
  bool run() {
    bool right = true;
    if (arguments_.tune) communicator_.tune();
    if (arguments_.explain) right = explain();
    if (is_first() && !arguments_.json) print_heading();
    for (const std::uint64_t bytes : plan_.bytes)
      for (const Algorithm algorithm : plan_.algorithms) {
        const Line line = run_case(algorithm, bytes);
        if (!is_first()) continue;
        print(algorithm, chosen(algorithm, line.bytes), line);
        right = right && line.wrong.empty();
      }
    communicator_.barrier();
    return right;
  }

 private:
  bool is_first() const { return communicator_.rank() == 0; }

  Line run_case(Algorithm algorithm, std::uint64_t bytes) {
    BenchCase bench_case(communicator_, {plan_.collective, algorithm, plan_.dtype, plan_.op, bytes, arguments_.in_place,
                                         arguments_.registered, plan_.segments, plan_.shards});
    bool right = bench_case.check();
    const std::uint32_t iterations = agreed_iterations(bench_case.time(iterations_warm));
    const Timing timing = bench_case.time(iterations);
    right = bench_case.check() && right;
    return collect(bench_case.bytes(), timing, right);
  }

  // What the communicator takes for "auto".
  Algorithm chosen(Algorithm algorithm, std::uint64_t bytes) {
    if (algorithm != Algorithm::automatic || is_pair(plan_.collective)) return algorithm;
    return Inspector::chosen(communicator_, plan_.collective, bytes_of_call(bytes)).algorithm;
  }
  std::uint64_t bytes_of_call(std::uint64_t bytes) const {
    const auto world = static_cast<std::uint64_t>(communicator_.size());
    return has_blocks(plan_.collective) ? bytes / world : bytes;
  }

  // Every rank explains; whether all say the same.
  bool explain() {
    if (is_pair(plan_.collective)) return true;
    Inspector::measure_links(communicator_);
    const Network measured = measure_network(communicator_, Inspector::network(communicator_));
    std::vector<Explanation> explanations;
    for (const std::uint64_t bytes : plan_.bytes)
      explanations.push_back(explained(communicator_, plan_.collective, bytes_of_call(bytes), measured));
    const std::string text = arguments_.json ? json_of(explanations) : text_of(explanations);
    const bool same = all_say(communicator_, text);
    if (is_first()) fmt::print("{}", text);
    if (is_first() && !arguments_.json && same) fmt::print("The same on all {} ranks.\n\n", communicator_.size());
    if (is_first() && !same) fmt::print(stderr, "gradsync bench: the ranks' explanations differ\n");
    return same;
  }

  // Rank 0 chooses for all.
  std::uint32_t agreed_iterations(const Timing& warm) {
    std::uint32_t iterations = plan_.iterations;
    if (iterations == 0) {
      const double seconds = 1e-9 * static_cast<double>(warm.end_ns.back() - warm.start_ns.back());
      const double fitting = seconds_a_size / std::max(seconds, 1e-9);
      iterations = static_cast<std::uint32_t>(std::clamp<double>(fitting, iterations_least, iterations_most));
    }
    communicator_.broadcast(View{&iterations, 1, DType::u32}, 0);
    return iterations;
  }

  Line collect(std::uint64_t bytes, const Timing& timing, bool right) {
    const std::size_t n = timing.start_ns.size(), row = 2 + 2 * n,
                      world = static_cast<std::size_t>(communicator_.size());
    std::vector<std::int64_t> mine{right ? 1 : 0, timing.cpu_ns}, all(is_first() ? row * world : 0);
    mine.insert(mine.end(), timing.start_ns.begin(), timing.start_ns.end());
    mine.insert(mine.end(), timing.end_ns.begin(), timing.end_ns.end());
    communicator_.gather(view(mine), view(all), 0);
    Line line;
    if (!is_first()) return line;
    line.bytes = bytes;
    line.iterations = static_cast<std::uint32_t>(n);
    for (std::size_t r = 0; r < world; ++r) {
      if (all[r * row] == 0) line.wrong.push_back(static_cast<int>(r));
      line.cpu_s += 1e-9 * static_cast<double>(all[r * row + 1]);
    }
    for (std::size_t i = 0; i < n; ++i) line.us.push_back(duration_us(all, row, i));
    std::ranges::sort(line.us);
    return line;
  }

  // From the last rank's start to the last rank's end; across hosts, whose clocks differ, the longest of the ranks.
  double duration_us(const std::vector<std::int64_t>& all, std::size_t row, std::size_t i) const {
    const std::size_t n = (row - 2) / 2;
    std::int64_t start = 0, end = 0, longest = 0;
    for (std::size_t at = 0; at < all.size(); at += row) {
      const std::int64_t from = all[at + 2 + i], to = all[at + 2 + n + i];
      start = std::max(start, from);
      end = std::max(end, to);
      longest = std::max(longest, to - from);
    }
    return 1e-3 * static_cast<double>(one_clock_ ? end - start : longest);
  }

  void print_heading() const {
    fmt::print("{} on {} ranks, {}, {}{}\n", name_of(plan_.collective), communicator_.size(), arguments_.transport,
               arguments_.dtype, has_operator(plan_.collective) ? " " + arguments_.op : "");
    fmt::print("{:<25} {:>12} {:>6} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>8}  {}\n", "algorithm", "bytes", "calls",
               "us_p10", "us_p50", "us_p90", "us_p99", "alg GB/s", "bus GB/s", "cpu s/GB", "result");
  }

  void print(Algorithm algorithm, Algorithm chosen, const Line& line) const {
    const double p50 = percentile(line.us, 0.5), bytes = static_cast<double>(line.bytes);
    const double algbw = p50 > 0 ? bytes / p50 * 1e-3 : 0,
                 busbw = algbw * bus_factor(plan_.collective, communicator_.size());
    const double cpu = bytes > 0 ? line.cpu_s / (bytes * line.iterations * 1e-9) : 0;
    if (arguments_.json) {
      print_json(algorithm, chosen, line, algbw, busbw, cpu);
    } else {
      fmt::print("{:<25} {:>12} {:>6} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>9.3f} {:>9.3f} {:>8.3g}  {}\n",
                 chosen == algorithm ? std::string(name_of(algorithm))
                                     : fmt::format("{} ({})", name_of(algorithm), name_of(chosen)),
                 line.bytes, line.iterations, percentile(line.us, 0.1), p50, percentile(line.us, 0.9),
                 percentile(line.us, 0.99), algbw, busbw, cpu, line.wrong.empty() ? "right" : "WRONG");
    }
    if (!line.wrong.empty())
      fmt::print(stderr, "gradsync bench: wrong result of {} {} with {} bytes on rank {}\n", name_of(plan_.collective),
                 name_of(algorithm), line.bytes, fmt::join(line.wrong, ", "));
    std::fflush(stdout);
  }

  void print_json(Algorithm algorithm, Algorithm chosen, const Line& line, double algbw, double busbw,
                  double cpu) const {
    const nlohmann::ordered_json object{{"collective", name_of(plan_.collective)},
                                        {"algorithm", name_of(algorithm)},
                                        {"transport", arguments_.transport},
                                        {"ranks", communicator_.size()},
                                        {"bytes", line.bytes},
                                        {"dtype", arguments_.dtype},
                                        {"op", has_operator(plan_.collective) ? arguments_.op : "none"},
                                        {"iterations", line.iterations},
                                        {"us_p10", rounded(percentile(line.us, 0.1))},
                                        {"us_p50", rounded(percentile(line.us, 0.5))},
                                        {"us_p90", rounded(percentile(line.us, 0.9))},
                                        {"us_p99", rounded(percentile(line.us, 0.99))},
                                        {"algbw_GBps", algbw},
                                        {"busbw_GBps", busbw},
                                        {"cpu_s_per_GB", cpu},
                                        {"correct", line.wrong.empty()},
                                        {"chosen", name_of(chosen)}};
    fmt::print("{}\n", object.dump());
  }

  const BenchPlan& plan_;
  const BenchArguments& arguments_;
  Communicator communicator_;
  bool one_clock_ = true;
};

}  // namespace

int bench_worker(const BenchArguments& arguments) {
  auto plan = read_bench(arguments);
  if (!plan) return complain("bench", plan.status(), 2);
  try {
    Options options = Options::from_environment();
    if (plan->transport != TransportKind::automatic) options.transport = plan->transport;
    return Bench(*plan, arguments, Communicator::create(options)).run() ? 0 : 1;
  } catch (const Error& error) { return complain("bench", error.status(), 1); }
}

}  // namespace gradsync::cli
