// The harness itself: it must see failures, or every test that uses it proves nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "comm/store_server.hpp"
#include "support/digest.hpp"
#include "support/network.hpp"
#include "support/workers.hpp"

namespace gradsync::test {
namespace {

std::string rank_text() { return std::getenv("GRADSYNC_RANK"); }

int worker(const std::string& role) {
  std::printf("rank %s of %s as %s, extra %s\n", rank_text().c_str(), std::getenv("GRADSYNC_SIZE"), role.c_str(),
              std::getenv("EXTRA") ? std::getenv("EXTRA") : "none");
  std::fflush(stdout);
  if (role == "sleeper" || (role == "one_fails" && rank_text() != "1")) ::pause();
  if (role == "forker" && ::fork() == 0) ::pause();
  if (role == "talker")
    for (int i = 0; i < 100000; ++i) std::printf("line %d\n", i);
  return role == "one_fails" ? 7 : 0;
}

WorkerPlan plan_of(const std::string& role, std::uint32_t size) {
  WorkerPlan plan;
  plan.program = this_program();
  plan.arguments = {"worker", role};
  plan.size = size;
  return plan;
}

bool runs(int pid) { return ::kill(pid, 0) == 0; }
// Of a process group whose orphans are this process's children.
bool gone(int group) {
  const Deadline deadline = Deadline::after(10s);
  while (runs(-group) && !deadline.passed()) ::waitpid(-group, nullptr, WNOHANG);
  return !runs(-group);
}

TEST(Workers, GetRankSizeAndRendezvousAndTheirOutputIsKept) {
  WorkerPlan plan = plan_of("plain", 3);
  plan.environment = {{}, {"EXTRA=yes"}};
  const Outcome outcome = run_workers(plan);
  ASSERT_TRUE(outcome.ok()) << outcome.report();
  EXPECT_EQ(outcome.workers[0].output, "rank 0 of 3 as plain, extra none\n");
  EXPECT_EQ(outcome.workers[1].output, "rank 1 of 3 as plain, extra yes\n");
}

TEST(Workers, AFailureIsNamedAndTheRestIsKilledAfterTheGrace) {
  WorkerPlan plan = plan_of("one_fails", 3);
  plan.grace = 100ms;
  Workers workers(plan);
  const int other = workers.pid(0);
  const Outcome outcome = workers.wait();
  EXPECT_EQ(outcome.first_failed, 1);
  EXPECT_EQ(outcome.workers[1].exit_code, 7);
  EXPECT_TRUE(outcome.workers[0].overdue);
  EXPECT_FALSE(runs(other));
  EXPECT_NE(outcome.report().find("rank 1 exited with code 7"), std::string::npos) << outcome.report();
}

TEST(Workers, WhoeverIsStillThereAtTheDeadlineHasFailed) {
  WorkerPlan plan = plan_of("sleeper", 2);
  plan.deadline = 200ms;
  const Outcome outcome = run_workers(plan);
  EXPECT_FALSE(outcome.ok());
  EXPECT_TRUE(outcome.workers[0].overdue && outcome.workers[1].overdue);
}

TEST(Workers, NoneOutlivesItsOwnerAndSignalsReachThem) {
  int pid = 0;
  {
    Workers workers(plan_of("sleeper", 2));
    pid = workers.pid(0);
    ASSERT_TRUE(workers.wait_for_output(1, "as sleeper"));
    EXPECT_FALSE(workers.wait_for_output(1, "never said", 10ms));
    EXPECT_TRUE(workers.send_signal(1, SIGTERM));
    EXPECT_TRUE(runs(pid));
  }
  EXPECT_FALSE(runs(pid));
}

TEST(Workers, LongOutputAndGrandchildrenDoNotBlock) {
  const Outcome talked = run_workers(plan_of("talker", 1));
  ASSERT_TRUE(talked.ok()) << talked.report();
  EXPECT_NE(talked.workers[0].output.find("line 99999\n"), std::string::npos);
  EXPECT_LT(talked.workers[0].output.size(), 256u << 10);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Workers workers(plan_of("forker", 1));
  const int group = workers.pid(0);
  EXPECT_TRUE(workers.wait().ok());
  EXPECT_TRUE(gone(group)) << "what a worker started outlives it";
}

TEST(Workers, AProgramThatIsNotThereThrows) {
  WorkerPlan plan = plan_of("plain", 1);
  plan.program = "./no_such_program";
  EXPECT_THROW(run_workers(plan), std::runtime_error);
}

TEST(Network, HostsReachEachOtherAndNotTheOutside) {
  const Network network(3);
  std::unique_ptr<StoreServer> server;
  network.inside(2, [&] {
    Result<std::unique_ptr<StoreServer>> started = StoreServer::start(*parse_address(network.address(2)));
    throw_if_failed(started.status());
    server = *std::move(started);
  });
  network.inside(0, [&] {
    const SocketAddress there = to_socket_address(server->address());
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), there.get(), there.length), 0) << errno_text(errno);
  });
  EXPECT_THROW(network.command(0, {"ip", "route", "get", "192.0.2.1"}), std::runtime_error);
}

TEST(Digest, IsSha256) {
  Digest digest;
  digest.add(std::as_bytes(std::span("abc", 3)));
  EXPECT_EQ(hex(digest.take()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");  // FIPS 180-2, B.1
}

}  // namespace
}  // namespace gradsync::test

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "worker") return gradsync::test::worker(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
