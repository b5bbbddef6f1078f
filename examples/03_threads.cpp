// Ranks as threads of one process: for tests, and for programs that hold several replicas.
//
//   build/examples/03_threads
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "gradsync/gradsync.hpp"

int main() {
  constexpr std::uint32_t ranks = 3;
  auto comms = gradsync::Communicator::threads(ranks);
  std::atomic<int> wrong = 0;

  auto replica = [&](gradsync::Communicator& comm) {
    try {
      // The largest value wins, whichever rank holds it; then rank 0 tells everyone what to do next.
      std::vector<std::int64_t> scores = {comm.rank(), -comm.rank(), 7};
      comm.all_reduce(gradsync::view(scores), gradsync::ReduceOp::max);
      std::vector<std::uint8_t> order(5, comm.rank() == 0 ? std::uint8_t{42} : std::uint8_t{0});
      comm.broadcast(gradsync::view(order), 0);
      if (scores != std::vector<std::int64_t>{ranks - 1, 0, 7} || order.back() != 42) ++wrong;
    } catch (const gradsync::Error& error) {
      std::fprintf(stderr, "rank %d: %s\n", comm.rank(), error.what());
      ++wrong;
    }
  };

  std::vector<std::jthread> threads;
  for (auto& comm : comms) threads.emplace_back(replica, std::ref(comm));
  threads.clear();  // joins
  std::puts(wrong == 0 ? "ok" : "wrong");
  return wrong == 0 ? 0 : 1;
}
