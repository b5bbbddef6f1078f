// The tool as its users meet it: a process. GRADSYNC_TOOL is its path.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/process_for_test.hpp"
#include "gradsync/types.hpp"

namespace gradsync::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Each worker starts a grandchild outside its process group and tells both pids.
constexpr const char* two_generations = "setsid sleep 1000 & echo \"pid $!\"; echo \"pid $$\"; exec sleep 1000";

std::vector<std::string> tool(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GRADSYNC_TOOL);
  return arguments;
}

struct Said {
  int code;
  std::string out, err;
};
Said say(std::vector<std::string> arguments) {
  TestProgram program(tool(std::move(arguments)));
  const int code = program.finish();
  return {code, program.out(), program.err()};
}

// `gradsync run` with two workers of two generations, once all four processes are there.
class Family {
 public:
  Family() : run_(tool({"run", "-n", "2", "--", "sh", "-c", two_generations})) {
    EXPECT_TRUE(run_.read_until([&] { return numbers_after(run_.out(), "pid ").size() == 4; })) << run_.err();
    for (const pid_t pid : numbers_after(run_.out(), "pid ")) processes_.emplace_back(open_process(pid));
  }
  TestProgram& run() { return run_; }
  pid_t inner_launcher() const {
    const std::string path = fmt::format("/proc/{0}/task/{0}/children", run_.pid());
    std::FILE* file = std::fopen(path.c_str(), "re");
    int pid = -1;
    EXPECT_TRUE(file != nullptr && std::fscanf(file, "%d", &pid) == 1);
    if (file != nullptr) std::fclose(file);
    return pid;
  }
  void expect_all_ended() {
    for (const Descriptor& process : processes_) EXPECT_TRUE(has_ended(process));
  }

 private:
  TestProgram run_;
  std::vector<Descriptor> processes_;
};

TEST(Tool, LeavesNothingBehindWhenItIsKilled) {
  Family family;
  ::kill(family.run().pid(), SIGKILL);
  family.expect_all_ended();
}

TEST(Tool, LeavesNothingBehindWhenItsProcessGroupIsKilled) {
  Family family;
  ::kill(-family.run().pid(), SIGKILL);
  family.expect_all_ended();
}

TEST(Tool, LeavesNothingBehindWhenItsInnerProcessIsKilled) {
  Family family;
  ::kill(family.inner_launcher(), SIGKILL);
  EXPECT_EQ(family.run().finish(), 128 + SIGKILL);
  family.expect_all_ended();
}

TEST(Tool, PassesSignalsOnAndEndsAll) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Family family;
    ::kill(family.run().pid(), number);
    EXPECT_EQ(family.run().finish(), 128 + number);
    EXPECT_THAT(family.run().err(), HasSubstr(fmt::format("interrupted by signal {}", number)));
    family.expect_all_ended();
  }
}

TEST(Tool, LetsWorkersTidyUpAfterTheFirstSignal) {
  TestProgram run(tool({"run", "-n", "1", "--", "sh", "-c",
                        "trap 'echo tidied; exit 0' INT; echo ready; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(run.read_until([&] { return run.out().find("ready") != std::string::npos; }));
  ::kill(run.pid(), SIGINT);
  EXPECT_EQ(run.finish(), 128 + SIGINT);
  EXPECT_THAT(run.out(), HasSubstr("[0] tidied\n"));
}

TEST(Tool, KillsAtOnceOnTheSecondSignal) {
  TestProgram run(
      tool({"run", "-n", "2", "--", "sh", "-c", "trap 'echo heard' INT; echo ready; while :; do sleep 0.05; done"}));
  ASSERT_TRUE(run.read_until([&] { return numbers_after(run.out(), "ready").size() == 2; }));
  ::kill(run.pid(), SIGINT);
  ASSERT_TRUE(run.read_until([&] { return run.out().find("heard") != std::string::npos; }));
  ::kill(run.pid(), SIGINT);
  EXPECT_EQ(run.finish(), 128 + SIGINT);
}

TEST(Tool, RemovesWhatOtherLaunchersSaid) {
  std::vector<std::string> environment = current_environment();
  for (const char* stale : {"RANK=7", "WORLD_SIZE=9", "OMPI_COMM_WORLD_RANK=7", "GRADSYNC_RANK=7", "PMI_RANK=3"})
    environment.emplace_back(stale);
  TestProgram run(tool({"run", "-n", "1", "--transport", "tcp", "--option", "timeout=9", "--", "sh", "-c",
                        "env | grep -E '^(RANK|WORLD|OMPI|PMI|GRADSYNC_(RANK|OPTIONS))' | sort"}),
                  environment);
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.out(), "[0] GRADSYNC_OPTIONS=timeout=9,transport=tcp\n[0] GRADSYNC_RANK=0\n");
}

TEST(Tool, KeepsTheProgramsOwnOptions) {
  EXPECT_EQ(say({"run", "-n", "1", "--", "echo", "-n", "--", "--help"}).out, "[0] -- --help\n");
  EXPECT_EQ(say({"run", "-n", "1", "echo", "--timeout", "x"}).out, "[0] --timeout x\n");
}

struct Wrong {
  std::vector<std::string> arguments;
  int code;
  std::string message;
};

TEST(Tool, NamesWhatIsKnownWhenItIsAskedForSomethingElse) {
  const std::vector<Wrong> cases = {
      {{"show", "rong"}, 2, "unknown algorithm 'rong'; known: " + known_algorithms()},
      {{"show", "ring", "--collective", "reduse"}, 2, "unknown collective 'reduse'; known: " + known_collectives()},
      {{"show", "direct"}, 2, "all_reduce has no algorithm 'direct'; known: "},
      {{"show", "ring", "-n", "0"}, 2, "-n is 0, expected 1 to 1048576"},
      {{"show", "ring", "-n", "4", "--rank", "4"}, 2, "--rank is 4, expected -1 to 3"},
      {{"show", "ring", "-n", "4", "--hosts", "2,x"}, 2, "'2,x' is no list of ranks on each host"},
      {{"show", "ring", "--segments", "3"}, 2, "--segments is 3, but ring all_reduce has no pipeline to cut"},
      {{"show", "auto"}, 2, "all_reduce has no algorithm 'auto'; known: "},
      {{"prove", "--algorithm", "auto"}, 2, "auto is a choice among algorithms, not one; known: flat"},
      {{"prove", "--algorithm", "rong"}, 2, "unknown algorithm 'rong'"},
      {{"prove", "--ranks", "3-1"}, 2, "'3-1' is no list of world sizes"},
      {{"bench", "all_reduse"}, 2, "unknown collective 'all_reduse'; known: "},
      {{"bench", "all_reduce", "--dtype", "f31"}, 2, "unknown dtype 'f31'; known: " + known_dtypes()},
      {{"bench", "all_reduce", "--op", "mean"}, 2, "unknown operator 'mean'; known: " + known_reduce_ops()},
      {{"bench", "all_reduce", "--transport", "ucx"}, 2, "unknown transport 'ucx'; known: " + known_transports()},
      {{"bench", "all_reduce", "--bytes", "4,x"}, 2, "'x' is no size"},
      {{"bench", "all_reduce", "-n", "0"}, 2, "-n is 0, expected 1 to 4096"},
      {{"run", "-n", "0", "--", "true"}, 2, "-n is 0, expected 1 to 4096"},
      {{"run", "-n", "4097", "--", "true"}, 2, "-n is 4097, expected 1 to 4096"},
      {{"run", "-n", "two", "--", "true"}, 2, "two"},
      {{"run", "-n", "2"}, 2, "which program?"},
      {{"run", "--", "true"}, 2, "how many workers?"},
      {{"run", "-n", "2", "--timeot", "3", "true"}, 2, "unknown option '--timeot'"},
      {{"run", "-n", "2", "--transport", "ucx", "--", "true"}, 2, "unknown transport 'ucx'"},
      {{"run", "-n", "1", "--timeout", "1e300", "--", "true"}, 2, "--timeout is 1e+300, expected seconds above 0"},
      {{"run", "-n", "1", "--timeout", "nan", "--", "true"}, 2, "--timeout is nan, expected seconds above 0"},
      {{"run", "-n", "1", "--timeout", "-1", "--", "true"}, 2, "--timeout is -1, expected seconds above 0"},
      {{"bench", "all_reduce", "--timeout", "1e10"}, 2, "--timeout is 1e+10, expected seconds above 0"},
      {{"run", "-n", "2", "--option", "lane=2", "--", "true"}, 2, "lane"},
      {{"run", "-n", "2", "--option", "lanes", "--", "true"}, 2, "option 'lanes' is not of the form key=value"},
      {{"run", "--host-file", "/no/such/file", "--", "true"}, 2, "cannot open host file '/no/such/file'"},
      {{"run", "-n", "2", "--", "no-such-program-anywhere"}, 127, "cannot run 'no-such-program-anywhere'"},
      {{}, 2, "subcommand is required"},
      {{"dance"}, 2, "unknown command 'dance'; known: run, bench"},
  };
  for (const Wrong& wrong : cases) {
    const Said said = say(wrong.arguments);
    EXPECT_EQ(said.code, wrong.code) << wrong.message;
    EXPECT_THAT(said.err, HasSubstr(wrong.message));
    EXPECT_EQ(said.out, "") << wrong.message;
  }
}

TEST(Tool, HelpsANewcomer) {
  for (const char* command : {"run", "bench", "prove", "show"}) {
    const Said said = say({command, "--help"});
    EXPECT_EQ(said.code, 0);
    EXPECT_THAT(said.out, HasSubstr(fmt::format("gradsync {} ", command)));
    EXPECT_THAT(said.out, HasSubstr("Example"));
  }
  EXPECT_EQ(say({"help"}).out, say({"--help"}).out);
  EXPECT_EQ(say({"help", "run"}).out, say({"run", "--help"}).out);
  EXPECT_THAT(say({"help", "dance"}).err, HasSubstr("unknown command 'dance'"));
  EXPECT_THAT(say({"run", "--help"}).out, HasSubstr("SIGKILL if they are still there 1 s later"));
  EXPECT_THAT(say({"--version"}).out, HasSubstr("gradsync 0."));
}

TEST(Tool, OffersOnlyWhatItTakes) {
  for (const char* command : {"run", "bench"})
    EXPECT_THAT(say({command, "--help"}).out, AllOf(HasSubstr("shm"), Not(HasSubstr("loopback")))) << command;
  for (const char* command : {"prove", "show"})
    EXPECT_THAT(say({command, "--help"}).out, AllOf(HasSubstr("ring"), Not(HasSubstr("auto,")))) << command;
  EXPECT_THAT(say({"run", "--help"}).out, AllOf(HasSubstr("fault_seed"), HasSubstr("start_timeout")));
  const std::string completion = say({"completion", "bash"}).out;
  EXPECT_THAT(completion, AllOf(HasSubstr("\"auto shm tcp\""), Not(HasSubstr("loopback"))));
}

TEST(Tool, ProvesAFewWorldsAndPrintsThem) {
  const Said said = say({"prove", "--ranks", "1-5,300", "--algorithm", "circulant", "--json"});
  EXPECT_EQ(said.code, 0) << said.out;
  std::istringstream lines(said.out);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_TRUE(object.at("proven")) << line;
    if (object.at("collective") == "all_reduce" && object.at("ranks") == 5) {
      EXPECT_EQ(object.at("steps"), 6);  // the golden counters of this world
      EXPECT_EQ(object.at("sent"), 320);
      EXPECT_EQ(object.at("reduced"), 160);
    }
  }
  EXPECT_EQ(rows, 3u * 6);
}

TEST(Tool, BenchChecksEveryResultAndPrintsTheAgreedKeys) {
  const Said said = say(
      {"bench", "all_reduce", "-n", "3", "--bytes", "0,4,10K", "--iterations", "3", "--algorithm", "all", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  std::istringstream lines(said.out);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const auto object = nlohmann::ordered_json::parse(line);
    std::string keys;
    for (const auto& [key, value] : object.items()) keys += key + " ";
    EXPECT_EQ(keys,
              "collective algorithm transport ranks bytes dtype op iterations us_p10 us_p50 us_p90 us_p99 algbw_GBps "
              "busbw_GBps "
              "cpu_s_per_GB correct chosen ");
    EXPECT_TRUE(object.at("correct")) << line;
    EXPECT_EQ(object.at("chosen"), object.at("algorithm"));
  }
  EXPECT_EQ(rows, 3u * 10);
}

TEST(Tool, BenchTellsWhatAutoChose) {
  const Said said = say({"bench", "all_gather", "-n", "3", "--bytes", "0,4k,1M", "--iterations", "2", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  std::istringstream lines(said.out);
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const auto object = nlohmann::json::parse(line);
    EXPECT_EQ(object.at("algorithm"), "auto");
    const auto chosen = algorithm_named(object.at("chosen").get<std::string>());
    EXPECT_TRUE(chosen && *chosen != Algorithm::automatic) << line;
  }
  EXPECT_EQ(rows, 3u);
  EXPECT_THAT(say({"bench", "all_reduce", "-n", "2", "--bytes", "64", "--iterations", "1"}).out, HasSubstr("auto ("));
}

TEST(Tool, BenchRefusesAnotherNumberOfWorkersThanItIsOneOf) {
  const Said said = say({"run", "-n", "1", "--", GRADSYNC_TOOL, "bench", "barrier", "-n", "2", "--iterations", "1"});
  EXPECT_EQ(said.code, 2);
  EXPECT_THAT(said.err, HasSubstr("-n is 2, but this is one of 1 workers"));
}

TEST(Tool, BenchTakesPartWhenItIsAWorkerAlready) {
  const Said said = say({"run", "-n", "2", "--no-prefix", "--", GRADSYNC_TOOL, "bench", "all_gather", "--bytes", "64",
                         "--iterations", "2", "--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(nlohmann::json::parse(said.out).at("ranks"), 2);
}

}  // namespace
}  // namespace gradsync::cli
