// Start-up of N ranks as threads of one process, in milliseconds: until all have a communicator, and until the first
// all-reduce of all is done.
//
//   thread_start N [ROUNDS]     -> "N JOINED_MS FIRST_MS" a round
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gradsync/gradsync.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

bool start(std::uint32_t ranks) {
  const auto begin = Clock::now();
  auto members = gradsync::Communicator::threads(ranks);
  const double joined = ms_since(begin);
  std::vector<float> sums(ranks, 1.0f);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        members[r].all_reduce({&sums[r], 1, gradsync::DType::f32}, gradsync::ReduceOp::sum);
      });
  }
  std::printf("%u %.3f %.3f\n", ranks, joined, ms_since(begin));
  for (const float sum : sums)
    if (sum != static_cast<float>(ranks)) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0, rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  if (ranks < 1 || rounds < 1) return std::fprintf(stderr, "usage: thread_start N [ROUNDS]\n"), 2;
  for (int i = 0; i < rounds; ++i)
    if (!start(static_cast<std::uint32_t>(ranks))) return std::fprintf(stderr, "wrong sum\n"), 1;
}
