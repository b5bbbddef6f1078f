// Worker processes of a test: started together with a rendezvous, watched until a deadline, ended in any case.
//
//   WorkerPlan plan;
//   plan.program = this_program();              // or another binary; its main() looks at the arguments first
//   plan.arguments = {"worker", "ring"};
//   plan.size = 4;
//   plan.options = "transport=tcp,timeout=20";
//   Outcome outcome = run_workers(plan);
//   EXPECT_TRUE(outcome.ok()) << outcome.report();
//
// Each worker leads a process group, which is killed when the worker has ended; it dies with the thread that started it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/network.hpp"

namespace gradsync::test {

using namespace std::chrono_literals;

// The running test's own binary.
std::string this_program();

struct WorkerPlan {
  std::string program;
  std::vector<std::string> arguments;  // without the program's name; the rank is in the environment
  std::uint32_t size = 1;
  std::string options;                                // GRADSYNC_OPTIONS of every rank
  std::vector<std::vector<std::string>> environment;  // by rank: "NAME=value", comes last; may be shorter than size
  const Network* network = nullptr;                   // borrowed; null: all workers run in the test's own network
  std::vector<std::uint32_t> hosts;                   // by rank: host of `network`
  std::string rendezvous;                             // empty: a store held by the test (on rank 0's host)
  std::chrono::milliseconds deadline = 60s;           // of the whole run
  std::chrono::milliseconds grace = 15s;              // for the others, from the first failure on
};

struct WorkerEnd {
  bool ended = false;    // by itself or by a signal that the test sent
  bool overdue = false;  // killed at the deadline (or the grace's end)
  int exit_code = -1;    // -1 if it did not exit
  int signal = 0;        // that ended it, 0 if none
  std::string output;    // stdout and stderr as they came, the first and the last 64 KiB of it
};

struct Outcome {
  std::vector<WorkerEnd> workers;  // by rank
  int first_failed = -1;           // rank of the first that exited other than with 0, or was overdue
  bool ok() const { return first_failed < 0; }
  // Every rank that did not exit with 0, how it ended and the end of its output.
  std::string report() const;
};

class Workers {
 public:
  // Throws std::runtime_error if they cannot be started; then none runs.
  explicit Workers(const WorkerPlan& plan);
  ~Workers();  // SIGKILLs what still runs
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int pid(std::uint32_t rank) const;
  const std::string& rendezvous() const;
  // To the worker itself; false if it has ended.
  bool send_signal(std::uint32_t rank, int signal);
  // Waits until the rank's output holds `text`; false if it ends or the deadline passes before.
  bool wait_for_output(std::uint32_t rank, const std::string& text, std::chrono::milliseconds within = 30s);
  // Until all have ended, at most to the plan's deadline, counted from the start.
  Outcome wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Outcome run_workers(const WorkerPlan& plan);

}  // namespace gradsync::test
