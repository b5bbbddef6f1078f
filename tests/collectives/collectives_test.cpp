// Real processes: every collective with every element type and operator, over shared memory, over tcp, and mixed over two
// hosts (network namespaces), in worlds of 1 to 8. Results equal a reference computed apart, to the bit; digests of what
// all ranks share are compared here, outside of what is tested.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>

#include "base/status.hpp"
#include "collectives/job.hpp"
#include "support/workers.hpp"

namespace gradsync::test {
namespace {

// The transport between the ranks is the one that the job is about; `hosts` is how many hosts there must be.
void check_transport(const Communicator& comm, const std::string& transport) {
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (peer == comm.rank()) continue;
    const auto me = static_cast<std::size_t>(comm.rank());
    const bool near = comm.hosts()[static_cast<std::size_t>(peer)] == comm.hosts()[me];
    if (transport == "mixed" ? near != (peer % 2 == comm.rank() % 2) : !near)
      throw std::runtime_error(fmt::format("rank {} is taken to be on {} host", peer, near ? "the same" : "another"));
  }
}

int work(const std::string& transport) {
  Communicator comm = Communicator::create();
  check_transport(comm, transport);
  Job job(comm);
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
  plan.options = fmt::format("timeout=60,transport={}", mixed ? "auto" : world.transport);
  plan.deadline = 200s;
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
  for (const char* transport : {"shm", "tcp", "mixed"})
    for (std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 7u, 8u}) all.push_back({transport, size});
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
