// Replicas that are processes: over every transport, and one that dies in the middle of a bucket.
#include <csignal>
#include <cstdio>

#include "model.hpp"
#include "support/workers.hpp"
#include "worker.hpp"

namespace gradsync::training {
namespace {

// Steps with checks; prints "right" if all were.
int steps_worker() {
  Communicator comm = Communicator::create();
  GradientSync sync(comm, mixed_model(), {.bucket_bytes = 5000});
  for (std::uint64_t step = 0; step < 10; ++step) {
    sync.begin_step();
    backward(sync, step, comm.rank());
    sync.finish();
    expect_means(sync, step, comm.size());
  }
  comm.barrier();
  return testing::Test::HasFailure() ? 1 : 0;
}

// Rank 1 dies while its first bucket is on its way and before its second. What the others call parameters stays.
int dying_worker(bool forward) {
  Communicator comm = Communicator::create();
  GradientSyncOptions options;
  options.bucket_bytes = 4u << 20;
  if (forward) options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  GradientSync sync(comm, {{"a", {1 << 20}}, {"b", {1 << 20}}}, options);
  std::vector<float> weights(100, 1.0f);
  const Status status = thrown_by([&] {
    for (int step = 0;; ++step) {
      sync.begin_step();
      sync.ready(1);
      if (comm.rank() == 1 && step == 2) std::raise(SIGKILL);
      sync.ready(0);
      sync.finish();
      sync.wait_all();
      for (float& weight : weights) weight = static_cast<float>(step + 2);
    }
  });
  std::printf("%s of rank %d with weights of %g: %s\n", std::string(name_of(status.code)).c_str(), status.peer,
              static_cast<double>(weights[7]), status.message.c_str());
  return 0;
}

test::WorkerPlan plan_of(const std::string& what, std::uint32_t size, const char* transport) {
  test::WorkerPlan plan;
  plan.program = test::this_program();
  plan.arguments = {"worker", what};
  plan.size = size;
  plan.options = std::string("timeout=30,transport=") + transport;
  return plan;
}

TEST(Processes, EndWithTheMean) {
  for (const char* transport : {"shm", "tcp"}) {
    const test::Outcome outcome = test::run_workers(plan_of("steps", 3, transport));
    EXPECT_TRUE(outcome.ok()) << outcome.report();
  }
}

TEST(Processes, OneThatIsKilledInTheMiddleOfABucketIsNamedByTheOthers) {
  for (const char* transport : {"shm", "tcp"})
    for (const char* what : {"dying", "dying-forward"}) {
      const test::Outcome outcome = test::run_workers(plan_of(what, 3, transport));
      EXPECT_EQ(outcome.workers[1].signal, SIGKILL);
      for (const std::size_t survivor : {0u, 2u}) {
        EXPECT_EQ(outcome.workers[survivor].exit_code, 0) << outcome.report();
        EXPECT_NE(outcome.workers[survivor].output.find("peer_lost of rank 1 with weights of 3"), std::string::npos)
            << transport << " " << what << ": " << outcome.workers[survivor].output;
      }
    }
}

}  // namespace

int worker(std::string_view what) {
  if (what == "steps") return steps_worker();
  return dying_worker(what == "dying-forward");
}

}  // namespace gradsync::training
