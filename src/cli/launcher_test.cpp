#include "cli/launcher.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "cli/arguments.hpp"
#include "cli/process_for_test.hpp"

namespace gradsync::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ran {
  Outcome outcome;
  std::string out, err;
};

Ran run_script(std::uint32_t workers, const std::string& script, std::optional<Nanoseconds> timeout = {}) {
  MemoryFile out, err;
  Launch launch;
  launch.command = {"sh", "-c", script};
  launch.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  launch.workers = launch.size = workers;
  launch.rendezvous = "tcp://127.0.0.1:1/job";
  launch.timeout = timeout;
  launch.out = out.descriptor();
  launch.err = err.descriptor();
  Outcome outcome = run_workers(launch);
  EXPECT_TRUE(children().empty());
  return {outcome, out.text(), err.text()};
}

std::multiset<std::string> lines_of(const std::string& text) {
  std::multiset<std::string> lines;
  for (const std::string_view line : split(text, '\n')) lines.emplace(line);
  return lines;
}

TEST(Launcher, TellsEveryWorkerWhoItIsAndMarksItsLines) {
  const Ran ran = run_script(3, "echo $GRADSYNC_RANK of $GRADSYNC_SIZE at $GRADSYNC_RENDEZVOUS; echo careful >&2");
  EXPECT_EQ(ran.outcome.exit_code, 0);
  EXPECT_EQ(lines_of(ran.out),
            (std::multiset<std::string>{"", "[0] 0 of 3 at tcp://127.0.0.1:1/job",
                                        "[1] 1 of 3 at tcp://127.0.0.1:1/job", "[2] 2 of 3 at tcp://127.0.0.1:1/job"}));
  EXPECT_EQ(lines_of(ran.err), (std::multiset<std::string>{"", "[0] careful", "[1] careful", "[2] careful"}));
}

TEST(Launcher, PrintsALastLineWithoutNewline) {
  EXPECT_EQ(run_script(1, "printf 'one\\n\\ntwo'").out, "[0] one\n[0] \n[0] two\n");
}

TEST(Launcher, GivesTheWorkersAnEmptyInput) { EXPECT_EQ(run_script(1, "cat; echo done").out, "[0] done\n"); }

TEST(Launcher, ReturnsTheFirstFailureAndEndsTheOthers) {
  const Ran ran = run_script(4, "[ $GRADSYNC_RANK = 2 ] && { echo oh no >&2; exit 3; }; exec sleep 1000");
  EXPECT_EQ(ran.outcome.exit_code, 3);
  EXPECT_EQ(ran.outcome.failed_rank, 2);
  EXPECT_THAT(ran.outcome.message, HasSubstr("exited with code 3"));
  EXPECT_THAT(ran.err, StartsWith("[2] oh no\ngradsync run: rank 2 (pid "));
}

TEST(Launcher, WordsAWorkersDeathBySignal) {
  const Ran ran = run_script(2, "[ $GRADSYNC_RANK = 1 ] && kill -9 $$; exec sleep 1000");
  EXPECT_EQ(ran.outcome.exit_code, 128 + 9);
  EXPECT_EQ(ran.outcome.failed_rank, 1);
  EXPECT_THAT(ran.outcome.message, HasSubstr("was killed by signal 9 (killed); ending the others (rank 0)"));
}

TEST(Launcher, SaysWhoHadLeftBeforeTheFirstFailure) {
  // Rank 0 fails once one of the launcher's children, which is rank 2, has ended.
  const Ran ran = run_script(3,
                             "case $GRADSYNC_RANK in 2) exit 0;; 1) exec sleep 1000;; esac; "
                             "until for pid in $(cat /proc/$PPID/task/*/children); do "
                             "grep -qs '^State:.Z' /proc/$pid/status && break; done; do :; done; exit 4");
  EXPECT_EQ(ran.outcome.exit_code, 4);
  EXPECT_EQ(ran.outcome.failed_rank, 0);
  EXPECT_THAT(ran.outcome.message,
              HasSubstr("exited with code 4 (rank 2 had exited with code 0 before); ending the others (rank 1)"));
}

TEST(Launcher, KillsWorkersThatDoNotEndWhenAsked) {
  const TimePoint start = std::chrono::steady_clock::now();
  const Ran ran = run_script(3, "trap '' TERM; [ $GRADSYNC_RANK = 2 ] && exit 7; while :; do sleep 1000; done");
  EXPECT_EQ(ran.outcome.exit_code, 7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, test_patience);
}

TEST(Launcher, EndsGrandchildrenThatLeftTheGroupAfterASuccess) {
  const Ran ran = run_script(2, "setsid sh -c 'trap \"\" TERM; echo pid $$; exec sleep 1000' & sleep 0");
  EXPECT_EQ(ran.outcome.exit_code, 0);
  for (const pid_t pid : numbers_after(ran.out, "pid ")) EXPECT_LT(open_process(pid), 0) << pid;
}

TEST(Launcher, EndsGrandchildrenThatLeftTheGroupAfterAFailure) {
  const Ran ran = run_script(2, "setsid sleep 1000 & echo pid $!; [ $GRADSYNC_RANK = 1 ] && exit 5; exec sleep 1000");
  EXPECT_EQ(ran.outcome.exit_code, 5);
  const std::vector<pid_t> pids = numbers_after(ran.out, "pid ");
  EXPECT_FALSE(pids.empty());
  for (const pid_t pid : pids) EXPECT_LT(open_process(pid), 0) << pid;
}

TEST(Launcher, SaysWhoWasStillRunningAtTheTimeout) {
  const Ran ran = run_script(3, "[ $GRADSYNC_RANK = 1 ] || exec sleep 1000", std::chrono::milliseconds(300));
  EXPECT_EQ(ran.outcome.exit_code, exit_timeout);
  EXPECT_THAT(ran.err, HasSubstr("timed out after 0.3 s; still running: rank 0, 2\n"));
}

TEST(Launcher, KeepsLinesWholeUnderAFlood) {
  const Ran ran = run_script(4, "yes $GRADSYNC_RANK-abcdefghijklmnopqrstuvwxyz-$GRADSYNC_RANK | head -50000");
  const auto lines = lines_of(ran.out);
  EXPECT_EQ(lines.size(), 4u * 50000 + 1);
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(lines.count(fmt::format("[{0}] {0}-abcdefghijklmnopqrstuvwxyz-{0}", r)), 50000u);
}

TEST(Launcher, SaysThatAProgramDoesNotExistBeforeAnythingStarts) {
  MemoryFile err;
  Launch launch;
  launch.command = {"no-such-program-anywhere"};
  launch.err = err.descriptor();
  const Outcome outcome = run_workers(launch);
  EXPECT_EQ(outcome.exit_code, exit_not_found);
  EXPECT_THAT(err.text(), HasSubstr("cannot run 'no-such-program-anywhere': not found along PATH"));
}

TEST(Launcher, SaysThatAFileIsNoProgram) {
  for (const char* file : {"/etc/hostname", "/tmp"}) {
    MemoryFile err;
    Launch launch;
    launch.command = {file};
    launch.err = err.descriptor();
    EXPECT_EQ(run_workers(launch).exit_code, exit_not_executable) << file;
    EXPECT_THAT(err.text(), HasSubstr(fmt::format("cannot run '{}': ", file)));
  }
}

TEST(Launcher, LeavesAloneChildrenThatAreNotItsOwn) {
  TestProgram other({"/bin/sleep", "1000"});
  MemoryFile out;
  Launch launch;
  launch.command = {"sh", "-c", "exit 4"};
  launch.err = out.descriptor();
  EXPECT_EQ(run_workers(launch).exit_code, 4);
  EXPECT_EQ(::waitpid(other.pid(), nullptr, WNOHANG), 0) << "the other child has ended";
}

TEST(Launcher, EndsLikeAPipelineWhenItsReaderGoesAway) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const Descriptor broken(ends[1]);
  MemoryFile err;
  Launch launch;
  launch.command = {"sh", "-c", "yes"};
  launch.out = broken.get();
  launch.err = err.descriptor();
  EXPECT_EQ(run_workers(launch).exit_code, exit_signal + SIGPIPE);
  EXPECT_TRUE(children().empty());
}

}  // namespace
}  // namespace gradsync::cli
