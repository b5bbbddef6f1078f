// All-reduces at the board between processes, some of which are killed, stopped, late or forked.
//
// A worker is this program again; it runs the one test below that is disabled. (A fork without exec could not start threads under the
// thread sanitizer.) What it does and finds it writes into memory that all share.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/random.hpp"
#include "gradsync/communicator.hpp"
#include "transport/mapping.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kRanksMax = 4;
constexpr std::uint64_t kForkedCalls = 30;

struct Seen {                        // by one worker
  std::atomic<std::uint64_t> calls;  // ended well
  std::atomic<std::uint32_t> joined, failed;
  int code, peer;
  std::array<char, 400> words;
  std::chrono::nanoseconds processor_time;
};
struct Shared {
  std::array<Seen, kRanksMax> seen;
  std::atomic<std::uint32_t> go_on;  // by the test: the stopped rank has been continued and has ended
};

class Workers {
 public:
  Workers(std::uint32_t size, const std::string& task, const std::string& options) {
    auto memory = create_sealed_memory(sizeof(Shared));
    GRADSYNC_CHECK(memory.ok());
    memory_ = std::move(*memory);
    auto mapping = Mapping::shared(memory_.get(), sizeof(Shared));
    GRADSYNC_CHECK(mapping.ok());
    mapping_ = std::move(*mapping);
    ::fcntl(memory_.get(), F_SETFD, 0);  // workers inherit it
    static std::atomic<int> number{0};
    const std::string url = fmt::format("unix-abstract://board-{}-{}/job", ::getpid(), ++number);
    for (std::uint32_t rank = 0; rank < size; ++rank) pids_.push_back(start(rank, size, url, task, options));
  }
  ~Workers() {
    for (std::uint32_t rank = 0; rank < pids_.size(); ++rank)
      if (pids_[rank] > 0) ::kill(pids_[rank], SIGKILL), (void)end(rank);
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Shared& shared() { return *reinterpret_cast<Shared*>(mapping_.bytes().data()); }
  Seen& seen(std::uint32_t rank) { return shared().seen[rank]; }
  void signal(std::uint32_t rank, int number) { ::kill(pids_[rank], number); }
  // Its exit code, 128 and the signal, or -1 if it does not end in time.
  int end(std::uint32_t rank) {
    const Deadline deadline = Deadline::after(60s);
    int status = 0;
    while (::waitpid(pids_[rank], &status, WNOHANG) == 0) {
      if (deadline.passed()) return -1;
      std::this_thread::sleep_for(200us);
    }
    pids_[rank] = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool wait_for_all_to_join() {
    const Deadline deadline = Deadline::after(30s);
    const auto joined = [&] {
      for (std::uint32_t rank = 0; rank < pids_.size(); ++rank)
        if (seen(rank).joined == 0) return false;
      return true;
    };
    while (!joined() && !deadline.passed()) std::this_thread::sleep_for(100us);
    return joined();
  }
  bool wait_for_calls(std::uint32_t rank, std::uint64_t calls) {
    const Deadline deadline = Deadline::after(30s);
    while (seen(rank).calls < calls && !deadline.passed()) std::this_thread::sleep_for(100us);
    return seen(rank).calls >= calls;
  }

 private:
  pid_t start(std::uint32_t rank, std::uint32_t size, const std::string& url, const std::string& task,
              const std::string& options) {
    std::vector<std::string> environment = {fmt::format("GRADSYNC_RANK={}", rank),
                                            fmt::format("GRADSYNC_SIZE={}", size),
                                            "GRADSYNC_RENDEZVOUS=" + url,
                                            "GRADSYNC_OPTIONS=start_timeout=20," + options,
                                            fmt::format("BOARD_MEMORY={}", memory_.get()),
                                            "BOARD_TASK=" + task};
    for (const std::string name : {"TSAN_OPTIONS", "ASAN_OPTIONS", "UBSAN_OPTIONS"}) {
      const char* const value = std::getenv(name.c_str());
      // What only the stack of a thread knew that was not forked along counts as lost in the child.
      const bool forks = name == "ASAN_OPTIONS" && task == "fork children";
      environment.push_back(fmt::format("{}={}{}", name, value ? value : "", forks ? ":detect_leaks=0" : ""));
    }
    std::vector<std::string> arguments = {"worker", "--gtest_also_run_disabled_tests",
                                          "--gtest_filter=BoardWorker.DISABLED_Works", "--gtest_brief=1"};
    std::vector<char*> envp, argv;
    for (std::string& one : environment) envp.push_back(one.data());
    for (std::string& one : arguments) argv.push_back(one.data());
    envp.push_back(nullptr), argv.push_back(nullptr);
    const pid_t parent = ::getpid(), child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent) ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }

  Descriptor memory_;
  Mapping mapping_;
  std::vector<pid_t> pids_;
};

// ---- the worker's side

float value(int rank, std::uint64_t call, std::size_t i) {
  return static_cast<float>(static_cast<std::uint64_t>(rank + 1) * (i % 97 + call % 13 + 1));
}
bool right(std::span<const float> got, int size, std::uint64_t call) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != static_cast<float>(size * (size + 1) / 2) * static_cast<float>(i % 97 + call % 13 + 1)) return false;
  return true;
}
void fill(std::span<float> into, int rank, std::uint64_t call) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = value(rank, call, i);
}

struct Worker {
  Shared& shared;
  Seen& seen;
  Communicator comm;

  void check(std::span<float> data, std::uint64_t call) {
    fill(data, comm.rank(), call);
    comm.all_reduce(view(data), ReduceOp::sum);
    if (!right(data, comm.size(), call)) ::_exit(3);
    seen.calls = call + 1;
  }
  void record(const Error& error) {
    seen.code = static_cast<int>(error.code()), seen.peer = error.peer();
    std::strncpy(seen.words.data(), error.what(), seen.words.size() - 1);
    seen.failed = 1;
  }

  // Reduces small, staged and registered memory for ever, until somebody is lost.
  void reduce_until_lost() {
    std::vector<float> plain(600'000);
    const Memory memory = comm.allocate(plain.size() * sizeof(float));
    const std::span<float> all[] = {std::span(plain).first(100), std::span(plain).first(5000), plain,
                                    memory.as<float>().first(9001), memory.as<float>()};
    for (std::uint64_t call = 0;; ++call) check(all[mix64(call) % std::size(all)], call);
  }

  // Reduces registered memory until the deadline, as a rank has been stopped. Then the memory is ours.
  void keep_memory_from_the_stopped() {
    const Memory memory = comm.allocate(4u << 20);
    const std::span<float> data = memory.as<float>().subspan(5, 1'000'000);
    try {
      check(data, 0);
      while (true) {  // hardly anything but reductions, so that the stop hits one
        comm.all_reduce(view(data), ReduceOp::max);
        ++seen.calls;
      }
    } catch (const Error& error) { record(error); }
    std::ranges::fill(data, -1.0f);
    const Deadline deadline = Deadline::after(30s);
    while (shared.go_on == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
    if (!std::ranges::all_of(data, [](float x) { return x == -1.0f; })) ::_exit(4);
  }

  // Rank 1 comes late to every call. The others report what processor time their waiting took.
  void wait_for_the_late() {
    std::vector<float> data(100);
    check(data, 0);
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    for (std::uint64_t call = 1; call <= 3; ++call) {
      if (comm.rank() == 1) std::this_thread::sleep_for(300ms);
      check(data, call);
    }
    ::getrusage(RUSAGE_SELF, &after);
    const auto time = [](const rusage& of) {
      return std::chrono::seconds(of.ru_utime.tv_sec + of.ru_stime.tv_sec) +
             std::chrono::microseconds(of.ru_utime.tv_usec + of.ru_stime.tv_usec);
    };
    seen.processor_time = time(after) - time(before);
  }

  // Children forked in the middle of calls end in order, with all destructors, while the calls go on.
  void fork_children() {
    std::vector<float> plain(600'000);
    const Memory memory = comm.allocate(plain.size() * sizeof(float));
    std::atomic<bool> done{false};
    std::atomic<int> ended_badly{0};
    Work work;
    const auto fork_one = [&](bool with_work) {
      const pid_t child = ::fork();
      if (child == 0) {
        comm = Communicator();  // the child's copies
        if (with_work) work = Work();
        std::exit(0);
      }
      int status = 0;
      if (::waitpid(child, &status, 0) != child || status != 0) ++ended_badly;
    };
    std::thread forker([&] {
      for (; !done; std::this_thread::sleep_for(5ms)) fork_one(false);
    });
    for (std::uint64_t call = 0; call < kForkedCalls; ++call) {
      const std::span<float> data = call % 2 == 0 ? std::span(plain) : memory.as<float>();
      fill(data, comm.rank(), call);
      work = comm.all_reduce_async(view(data), ReduceOp::sum, {.moved_by_waiter = true});
      work.wait_for(std::chrono::microseconds(mix64(call) % 500));
      if ((call + static_cast<std::uint64_t>(comm.rank())) % 3 == 0)
        fork_one(true);  // under way, and no thread of the child is in it
      work.wait();
      if (!right(data, comm.size(), call)) ::_exit(3);
      seen.calls = call + 1;
    }
    done = true;
    forker.join();
    if (ended_badly > 0) ::_exit(5);
  }
};

TEST(BoardWorker, DISABLED_Works) {
  const char *memory = std::getenv("BOARD_MEMORY"), *name = std::getenv("BOARD_TASK");
  ASSERT_TRUE(memory != nullptr && name != nullptr) << "run by the tests below only";
  auto mapping = Mapping::shared(std::atoi(memory), sizeof(Shared));
  ASSERT_TRUE(mapping.ok());
  Shared& shared = *reinterpret_cast<Shared*>(mapping->bytes().data());
  Communicator comm = Communicator::create();
  Worker worker{shared, shared.seen[static_cast<std::size_t>(comm.rank())], std::move(comm)};
  worker.seen.joined = 1;
  const std::string task = name;
  try {
    if (task == "reduce until lost") worker.reduce_until_lost();
    if (task == "keep memory") worker.keep_memory_from_the_stopped();
    if (task == "wait for the late") worker.wait_for_the_late();
    if (task == "fork children") worker.fork_children();
  } catch (const Error& error) { worker.record(error); }
}

// ---- the tests

TEST(BoardProcesses, SurvivorsOfAKilledRankLearnWhoItWasAndNeverGetAWrongResult) {
  constexpr int kKills = 50;
  for (int kill = 0; kill < kKills; ++kill) {
    const auto size = static_cast<std::uint32_t>(2 + kill % 3);
    const auto victim = static_cast<std::uint32_t>(mix64(static_cast<std::uint64_t>(kill)) % size);
    SCOPED_TRACE(fmt::format("kill {}: rank {} of {}", kill, victim, size));
    Workers group(size, "reduce until lost", "timeout=20");
    ASSERT_TRUE(group.wait_for_all_to_join());
    const bool early = kill % 10 == 0;  // in or about the greeting
    ASSERT_TRUE(early || group.wait_for_calls(victim, static_cast<std::uint64_t>(1 + kill % 7)));
    std::this_thread::sleep_for(
        std::chrono::microseconds(mix64(static_cast<std::uint64_t>(kill) + 999) % (early ? 300 : 6000)));
    group.signal(victim, SIGKILL);
    EXPECT_EQ(group.end(victim), 128 + SIGKILL);
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      ASSERT_EQ(group.end(rank), 0) << "rank " << rank << " (3: a wrong result, -1: it hangs)";
      const Seen& seen = group.seen(rank);
      ASSERT_EQ(seen.failed, 1u);
      EXPECT_EQ(static_cast<ErrorCode>(seen.code), ErrorCode::peer_lost) << seen.words.data();
      EXPECT_EQ(seen.peer, static_cast<int>(victim)) << seen.words.data();
    }
  }
}

TEST(BoardProcesses, WhatAStoppedRankWritesAfterTheDeadlineReachesNobody) {
  for (int round = 0; round < 12; ++round) {
    constexpr std::uint32_t kSize = 3;
    const auto stopped = static_cast<std::uint32_t>(round % kSize);
    SCOPED_TRACE(fmt::format("round {}: rank {}", round, stopped));
    Workers group(kSize, "keep memory", "timeout=0.3");
    ASSERT_TRUE(group.wait_for_calls(stopped, 3));
    std::this_thread::sleep_for(std::chrono::microseconds(mix64(static_cast<std::uint64_t>(round)) % 5000));
    group.signal(stopped, SIGSTOP);
    const Deadline deadline = Deadline::after(20s);
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      while (rank != stopped && group.seen(rank).failed == 0 && !deadline.passed()) std::this_thread::sleep_for(1ms);
      if (rank == stopped) continue;
      ASSERT_EQ(group.seen(rank).failed, 1u) << "no deadline";
      EXPECT_EQ(static_cast<ErrorCode>(group.seen(rank).code), ErrorCode::timeout) << group.seen(rank).words.data();
      EXPECT_EQ(group.seen(rank).peer, static_cast<int>(stopped)) << group.seen(rank).words.data();
    }
    group.signal(stopped, SIGCONT);
    const Deadline goes_on = Deadline::after(20s);
    while (group.seen(stopped).failed == 0 && !goes_on.passed()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(group.seen(stopped).failed, 1u);
    group.shared().go_on = 1;
    for (std::uint32_t rank = 0; rank < kSize; ++rank)
      EXPECT_EQ(group.end(rank), 0) << "rank " << rank << " (4: its memory was written to)";
  }
}

TEST(BoardProcesses, WhoWaitsForALateRankSleeps) {
  Workers group(3, "wait for the late", "timeout=20");
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(group.end(rank), 0);
    EXPECT_EQ(group.seen(rank).calls, 4u) << group.seen(rank).words.data();
    // Of 900 ms, however slow the machine: the late one slept as long.
    if (rank == 1) continue;
    EXPECT_LT(group.seen(rank).processor_time, 450ms);
  }
}

TEST(BoardProcesses, ForkedChildrenThatExitHarmNobody) {
  Workers group(3, "fork children", "timeout=20");
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(group.end(rank), 0) << "rank " << rank << " (3: a wrong result, 5: a child ended badly)";
    EXPECT_EQ(group.seen(rank).calls, kForkedCalls) << group.seen(rank).words.data();
  }
}

}  // namespace
}  // namespace gradsync
