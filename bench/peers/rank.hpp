// A rank of the benchmark of peers, whatever the library: the link to the driver (run), a barrier between ranks, the test
// pattern with its check, and the timed loop.
//
// A rank joins its group, does one first all-reduce, connects to the driver's UNIX socket (BENCH_SOCKET) and says
//   hello PEER RANK RANKS PID JOINED_NS FIRST_NS DESCRIPTORS_JOINED DESCRIPTORS_FIRST
// Then it obeys one line at a time:
//   run WAY BYTES WARM_UP ITERATIONS BARRIER   -> "ok ITERATIONS CPU_NS WRONG\n" and that many Stamps
//   quit
// While it waits for a line it sleeps, so that the groups of several peers can be alive at once and take turns.
// Stamps are CLOCK_MONOTONIC, one clock for all processes of a machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench {

[[noreturn]] void die(const char* what);  // with errno's text
std::int64_t now_ns();
std::int64_t cpu_ns();  // of the whole process: a peer's helper threads count too
int number_from_environment(const char* name);
int open_descriptors();

// Between the ranks, in a shared file, and no part of the library under test. Ranks sleep until all have come, so that a
// fast one takes no core from another's helper threads. With a core for each they then meet once more, spinning for as long
// as the others need to wake, so as to start together.
class Barrier {
 public:
  Barrier(const char* path, int ranks);
  // -> when it opened: every rank was ready then.
  std::int64_t wait();

 private:
  struct Phase;
  std::int64_t meet(Phase& phase, bool spin);

  Phase* phases_ = nullptr;
  int ranks_;
  bool core_each_;
};

// Small whole numbers, whose sum is exact in any order. The period is prime: a chunk put at the wrong place does not match
// by chance.
class Pattern {
 public:
  static constexpr std::size_t period = 4093;

  Pattern(int rank, int ranks);
  void fill(float* data, std::size_t count, unsigned shift) const;
  bool is_sum(const float* data, std::size_t count, unsigned shift) const;

 private:
  std::vector<float> mine_, sum_;
};

// What one run needs: memory, owned by `keep`, and the call that all-reduces it in place.
struct Call {
  std::shared_ptr<void> keep;
  float* data = nullptr;
  std::function<void()> all_reduce;
};

struct Command {
  std::string way;
  std::size_t bytes = 0;
  int warm_up = 0, iterations = 0, barrier = 0;
};

struct Stamp {
  std::int64_t release, start, end;
};

struct Outcome {
  std::vector<Stamp> stamps;
  std::int64_t cpu_ns = 0;
  int wrong = 0;
};

// malloc's memory, at a multiple of 64 bytes as frameworks have it, touched.
std::shared_ptr<void> ordinary_memory(std::size_t bytes);

struct Contender {
  std::string name;
  int rank = 0, ranks = 1;
  std::function<Call(const std::string& way, std::size_t count)> prepare;
  // Run, untimed, before a rank sleeps in a barrier of the benchmark: an MPI moves nothing while its caller is elsewhere and
  // may return with data still to be sent, for which another rank would wait for ever.
  std::function<void()> settle = {};
  // In place of the timed loop, for what is no all-reduce: the limits of the machine take turns with the peers.
  std::function<Outcome(const Command&)> measure = {};
};

// From here on a rank does what the driver says. To be called as soon as the rank has joined its group.
void serve(const Contender& contender);

}  // namespace bench
