// Real processes: every collective with every element type and operator, over shared memory, over tcp, and mixed over two
// hosts (network namespaces), in worlds of 1 to 8. Over shared memory also from registered memory ("lent"), and where only
// every other rank has such ("half"). Results equal a reference computed apart, to the bit; digests of what
// all ranks share are compared here, outside of what is tested.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/status.hpp"
#include "collectives/job.hpp"
#include "support/workers.hpp"

namespace gradsync::test {
namespace {

// Even ranks are on one host and odd ones on the other in a mixed world, else all on one: found out by probing.
void check_hosts(const Communicator& comm, const std::string& transport) {
  const auto me = static_cast<std::size_t>(comm.rank());
  for (std::size_t peer = 0; peer < comm.hosts().size(); ++peer) {
    const bool near = comm.hosts()[peer] == comm.hosts()[me];
    if (transport == "mixed" ? near != (peer % 2 == me % 2) : !near)
      throw std::runtime_error(fmt::format("rank {} is taken to be on {} host", peer, near ? "the same" : "another"));
  }
}

// Two hosts have cores of their own. Without this each would believe to have all of the machine's, and its ranks spin.
void take_cores_of_host(std::size_t host) {
  cpu_set_t all, mine;
  CPU_ZERO(&mine);
  if (::sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  std::size_t number = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all) && number++ % 2 == host) CPU_SET(cpu, &mine);
  ::sched_setaffinity(0, sizeof mine, &mine);
}

int work(const std::string& transport) {
  const Options options = Options::from_environment();
  if (transport == "mixed") take_cores_of_host(static_cast<std::size_t>(options.rank % 2));
  Communicator comm = Communicator::create(options);
  check_hosts(comm, transport);
  Job job(comm);
  if (transport == "lent" || (transport == "half" && options.rank % 2 == 1)) job.use_registered_memory();
  job.move_everything();
  job.reduce_everything();
  job.reduce_wide_floats();
  job.pass_barriers();
  return job.finish() ? 0 : 1;
}

struct World {
  const char* transport;
  std::uint32_t size;
};

std::map<std::string, std::string> digests_of(const std::string& output) {
  std::map<std::string, std::string> digests;
  std::istringstream lines(output);
  for (std::string word, what, digest; lines >> word;)
    if (word == "digest" && lines >> what >> digest) digests[what] = digest;
  return digests;
}

class Collectives : public ::testing::TestWithParam<World> {};

TEST_P(Collectives, EqualTheReferenceAndEachOther) {
  const World world = GetParam();
  const bool mixed = std::string(world.transport) == "mixed";
  std::unique_ptr<Network> network;
  WorkerPlan plan;
  plan.program = this_program();
  plan.arguments = {"worker", world.transport};
  plan.size = world.size;
  const bool over_shm = std::string(world.transport) == "lent" || std::string(world.transport) == "half";
  plan.options = fmt::format("timeout=60,transport={}", mixed ? "auto" : over_shm ? "shm" : world.transport);
  plan.deadline = 220s;
  if (mixed) {
    network = std::make_unique<Network>(2);
    plan.network = network.get();
    for (std::uint32_t rank = 0; rank < world.size; ++rank) plan.hosts.push_back(rank % 2);
  }
  const Outcome outcome = run_workers(plan);
  ASSERT_TRUE(outcome.ok()) << outcome.report();
  const std::map<std::string, std::string> first = digests_of(outcome.workers[0].output);
  EXPECT_EQ(first.size(), (kinds_total(1) - 5 * kDTypeCount) / 3 + 2 * kDTypeCount + 8)
      << "all_reduce of every pair, all_gather and broadcast of every element type, 8 of wide floats";
  const std::string covered = fmt::format("covered {}\n", kinds_total(world.size) * counts_of(world.size).size());
  for (const WorkerEnd& worker : outcome.workers) {
    EXPECT_EQ(digests_of(worker.output), first);
    EXPECT_NE(worker.output.find(covered), std::string::npos) << covered << worker.output;
  }
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const char* transport : {"shm", "tcp", "mixed", "lent"})
    for (std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 7u, 8u}) all.push_back({transport, size});
  for (std::uint32_t size : {2u, 3u, 5u}) all.push_back({"half", size});
  return all;
}
INSTANTIATE_TEST_SUITE_P(World, Collectives, ::testing::ValuesIn(worlds()), [](const auto& which) {
  return fmt::format("{}_{}", which.param.transport, which.param.size);
});

}  // namespace
}  // namespace gradsync::test

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "worker") {
    try {
      return gradsync::test::work(argv[2]);
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      return 2;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
