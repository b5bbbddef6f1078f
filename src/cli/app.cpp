// The commands and their options as CLI11 reads them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>

#include "base/limits.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/launcher.hpp"
#include "comm/environment.hpp"
#include "gradsync/types.hpp"

namespace gradsync::cli {
namespace {

constexpr const char* version_text = "gradsync 0.1.0";

constexpr const char* tool_help = R"(gradsync keeps processes in step: collectives over shared memory and TCP.

Examples:
  gradsync run -n 4 -- ./my_program        four workers on this host
  gradsync bench all_reduce -n 4           how fast, and is it right?
  gradsync show ring -n 8                  what an algorithm does, round by round
  gradsync prove --ranks 1-64              that every algorithm is right
)";

constexpr const char* run_help =
    R"(Each worker finds its rank, the number of workers and where they meet in its environment (GRADSYNC_RANK, GRADSYNC_SIZE,
GRADSYNC_RENDEZVOUS); gradsync::Communicator::create() reads them. Every line that a worker prints begins with its rank.
If one fails, its exit code is returned (128 + signal if it was killed) and the others are ended: they get SIGTERM, and
SIGKILL if they are still there {:g} s later. Ctrl-C ends all; nothing is left behind.

Examples:
  gradsync run -n 4 -- ./train --epochs 3
  gradsync run -n 2 --transport tcp --timeout 60 -- python3 train.py
  gradsync run --host-file hosts -- ./train     the same command on every host of the file

A host file has a line for each host, the first of which holds the meeting point:
  node-a slots=4
  10.0.0.2:4            # the same in short
)";

constexpr double grace_s = std::chrono::duration<double>(limits::launcher_kill_grace).count();

constexpr const char* show_help = R"(Examples:
  gradsync show ring -n 4
  gradsync show circulant -n 8 --rank 3                       one rank's steps, as text that can be read back
  gradsync show tree --collective broadcast --root 2 --svg tree.svg
  gradsync show hierarchical -n 8 --hosts 4,4 --svg two_hosts.svg
  gradsync show two_shot -n 4 --shards 0,1,1,1 --elements 12    the first rank's link is slow: it owns nothing
)";

constexpr const char* prove_help =
    R"(A proof means: every rank ends with every contribution exactly once, all ranks with the same bits, and
nobody waits forever. Prints what each algorithm costs in the largest world. Exit code 1 if a proof fails.

Examples:
  gradsync prove                                all algorithms for 1 to 64 ranks
  gradsync prove --ranks 1000,4096 --algorithm circulant
  gradsync prove --markdown > docs/algorithms.md
)";

constexpr const char* bench_help =
    R"(Workers that gradsync run started take part as they are: gradsync run --host-file hosts -- gradsync bench all_reduce

Examples:
  gradsync bench all_reduce -n 4 --bytes 4K,1M,64M
  gradsync bench all_reduce -n 8 --bytes 64K --algorithm all --transport tcp
  gradsync bench all_gather -n 4 --dtype bf16 --json
  gradsync bench all_reduce -n 4 --bytes 1M --explain      why auto does it as it does

Bytes are those of the whole message: what a rank holds after (all_gather, gather, scatter: all blocks together). algbw is
bytes / time; busbw scales it to what a link must carry, so that worlds can be compared. us_* are percentiles of the time
from the first rank's start to the last rank's end.
)";

// Says in the usage line of `run` that a program follows.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (app->get_name() != "run") return usage;
    return usage.substr(0, usage.find_last_not_of('\n') + 1) + " -- PROGRAM ARGS...\n";
  }
};

// Reads the arguments that come before the program; everything from the program on is its own.
class Tool {
 public:
  Tool() : app_(tool_help, "gradsync") {
    app_.set_version_flag("--version", version_text, "Print the version");
    app_.require_subcommand(1);
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.failure_message([](const CLI::App*, const CLI::Error& error) {
      return fmt::format("gradsync: {}\ngradsync --help and gradsync COMMAND --help tell more\n", error.what());
    });
    add_run();
    add_bench();
    add_prove();
    add_show();
    add_completion();
  }

  int run(std::vector<std::string> arguments) {
    if (!arguments.empty() && arguments[0] == "help") {  // of a command, if one follows
      arguments.erase(arguments.begin());
      arguments.resize(std::min<std::size_t>(arguments.size(), 1));
      arguments.emplace_back("--help");
    }
    if (!arguments.empty() && !arguments[0].starts_with('-') && !is_command(arguments[0])) {
      fmt::print(stderr, "gradsync: unknown command '{}'; known: run, bench, prove, show, completion, help\n",
                 arguments[0]);
      return exit_usage;
    }
    std::vector<std::string> tail;
    bool separated = false;
    if (!arguments.empty() && arguments[0] == "run") {
      const auto separator = std::ranges::find(arguments, "--");
      separated = separator != arguments.end();
      if (separated) tail.assign(separator + 1, arguments.end());
      arguments.erase(separator, arguments.end());
    }
    std::ranges::reverse(arguments);  // as CLI11 wants them
    try {
      app_.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) { return app_.exit(error) == 0 ? 0 : exit_usage; }
    if (run_->parsed()) take_program(std::move(tail), separated);
    return action_();
  }

 private:
  bool is_command(const std::string& name) {
    const auto commands = app_.get_subcommands([](CLI::App*) { return true; });
    return std::ranges::any_of(commands, [&](const CLI::App* command) { return command->get_name() == name; });
  }

  // With a program before "--", the separator is one of its arguments.
  void take_program(std::vector<std::string> tail, bool separated) {
    run_arguments_.prefix = !no_prefix_;
    run_arguments_.command = run_->remaining();
    if (!run_arguments_.command.empty() && separated) run_arguments_.command.emplace_back("--");
    run_arguments_.command.insert(run_arguments_.command.end(), tail.begin(), tail.end());
  }

  CLI::App* add_command(const char* name, const char* brief, const std::string& help, std::function<int()> action) {
    CLI::App* command = app_.add_subcommand(name, brief);
    command->footer(help);
    command->callback([this, action = std::move(action)] { action_ = action; });
    return command;
  }

  void add_run() {
    RunArguments& a = run_arguments_;
    run_ = add_command("run", "Start N workers of a program and watch over them", fmt::format(run_help, grace_s),
                       [&a] { return run_command(a); });
    run_->add_option("-n,--ranks", a.workers, fmt::format("Number of workers, 1 to {}", limits::launch_ranks_max));
    run_->add_option("--timeout", a.timeout_s, "End everything after this many seconds (exit code 124)");
    run_->add_option("--host-file", a.host_file, "Hosts and their numbers of workers; run the same command on each");
    run_->add_option("--host-index", a.host_index,
                     "Which entry of the host file this host is, from 0 (default: found out)");
    run_->add_option("--port", a.port, "Port of the meeting point on the first host of the file")
        ->capture_default_str();
    run_->add_option("--transport", a.settings.transport, "One of: " + transports_of_processes());
    run_->add_option("--interface", a.settings.interface, "Network interfaces: names, patterns, addresses or CIDR");
    run_->add_option("--option", a.settings.options,
                     "A setting as key=value, as timeout=30 (again for more). Keys: " + known_option_names())
        ->allow_extra_args(false);
    run_->add_flag("--no-prefix", no_prefix_, "Do not begin every line with the rank");
    run_->prefix_command();
  }

  void add_show() {
    ShowArguments& a = show_arguments_;
    CLI::App* show = add_command("show", "Show what every rank sends to whom, as text or picture", show_help,
                                 [&a] { return show_command(a); });
    show->add_option("ALGORITHM", a.algorithm, "One of: " + real_algorithms())->required();
    show->add_option("-n,--ranks", a.ranks, "Number of ranks")->capture_default_str();
    show->add_option("--collective", a.collective, "One of: " + known_collectives())->capture_default_str();
    show->add_option("--rank", a.rank, "Only this rank's steps");
    show->add_option("--root", a.root, "Root of broadcast, reduce, gather and scatter")->capture_default_str();
    show->add_option("--segments", a.segments, "Segments of algorithms that pipeline")->capture_default_str();
    show->add_option("--hosts", a.hosts, "Ranks of each host, as 4,4");
    show->add_option("--shards", a.shards,
                     "Weights of uneven parts, as 0,1,1,1 (two_shot: a rank's; hierarchical: a host's)");
    show->add_option("--elements", a.elements, "Also how many elements each chunk of a message of so many has");
    show->add_option("--svg", a.svg, "Write a picture to this file (- for standard output)");
  }

  void add_prove() {
    ProveArguments& a = prove_arguments_;
    CLI::App* prove =
        add_command("prove", "Prove that algorithms are right", prove_help, [&a] { return prove_command(a); });
    prove->add_option("--ranks", a.ranks, "World sizes, as 1-64 or 1000,4096")->capture_default_str();
    prove->add_option("--algorithm", a.algorithm, "Only this one of: " + real_algorithms());
    prove->add_option("--collective", a.collective, "Only this one of: " + known_collectives());
    prove->add_option("--threads", a.threads, "Threads that prove")->capture_default_str();
    prove->add_flag("--json", a.json, "One object a line, for each algorithm and world");
    prove->add_flag("--markdown", a.markdown, "The page docs/algorithms.md");
  }

  void bench_options(CLI::App* bench) {
    BenchArguments& a = bench_arguments_;
    bench->add_option("COLLECTIVE", a.collective, "One of: " + known_collectives())->required();
    bench->add_option("-n,--ranks", a.ranks, "Number of workers")
        ->capture_default_str()
        ->each([&a](const std::string&) { a.ranks_given = true; });
    bench->add_option("--bytes", a.bytes, "Message sizes, with K, M, G")->capture_default_str();
    bench->add_option("--dtype", a.dtype, "One of: " + known_dtypes())->capture_default_str();
    bench->add_option("--op", a.op, "One of: " + known_reduce_ops())->capture_default_str();
    bench->add_option("--algorithm", a.algorithm, "auto, all, or one of: " + real_algorithms())->capture_default_str();
    bench->add_option("--transport", a.transport, "One of: " + transports_of_processes())->capture_default_str();
    bench->add_option("--iterations", a.iterations, "Timed calls of each size (default: by size)");
    bench->add_option("--timeout", a.timeout_s, "End everything after this many seconds")->capture_default_str();
    bench->add_option("--segments", a.segments, "Pipeline segments (default: chosen)");
    bench->add_option("--shards", a.shards,
                      "Weights of uneven parts, as 0,1,1,1, for --algorithm two_shot or hierarchical");
    bench->add_flag("--tune", a.tune, "Measure links and reductions first, and choose by them");
    bench->add_flag("--explain", a.explain, "Show the network, the candidates' forecasts and what auto chooses");
    bench->add_flag("--in-place", a.in_place, "Output where the input is");
    bench->add_flag("--registered", a.registered,
                    "In memory from Communicator::allocate, which is read in place on a host");
    bench->add_flag("--json", a.json, "One object a line");
  }

  void add_bench() {
    BenchArguments& a = bench_arguments_;
    bench_options(add_command("bench", "Check a collective's results, then time it", bench_help,
                              [&a] { return bench_command(a); }));
    CLI::App* worker = add_command("bench-worker", "", "One worker of bench", [&a] { return bench_worker(a); });
    worker->group("");  // not listed
    bench_options(worker);
  }

  void add_completion() {
    CLI::App* completion =
        add_command("completion", "Print a shell completion script", "Example: eval \"$(gradsync completion bash)\"",
                    [this] { return completion_command(shell_); });
    completion->add_option("SHELL", shell_, "bash")->required();
  }

  CLI::App app_;
  CLI::App* run_ = nullptr;
  RunArguments run_arguments_;
  bool no_prefix_ = false;
  ShowArguments show_arguments_;
  ProveArguments prove_arguments_;
  BenchArguments bench_arguments_;
  std::string shell_;
  std::function<int()> action_ = [] { return exit_usage; };
};

}  // namespace

int complain(const std::string& command, const Status& status, int exit_code) {
  fmt::print(stderr, "gradsync {}: {}\n", command, status.message);
  return exit_code;
}

int run_tool(int argument_count, char** arguments) {
  return Tool().run(std::vector<std::string>(arguments + 1, arguments + argument_count));
}

}  // namespace gradsync::cli
