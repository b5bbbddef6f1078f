// Every rank contributes a block of its own size; everyone ends with all blocks, in rank order.
//
//   gradsync run -n 4 -- build/examples/04_uneven_all_gather
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include "gradsync/gradsync.hpp"

int main() try {
  auto comm = gradsync::Communicator::create();

  // Rank r has r samples; rank 0 has none. First everyone learns the counts…
  const std::uint64_t mine = static_cast<std::uint64_t>(comm.rank());
  std::vector<std::uint64_t> told(static_cast<std::size_t>(comm.size()));
  comm.all_gather(gradsync::ConstView(&mine, 1, gradsync::DType::u64), gradsync::view(told));
  const std::vector<std::size_t> counts(told.begin(), told.end());

  // …then the samples travel.
  const std::vector<std::int32_t> samples(mine, 10 * comm.rank());
  std::vector<std::int32_t> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  comm.all_gather(gradsync::view(samples), gradsync::view(all), counts);

  std::vector<std::int32_t> expected;
  for (int rank = 0; rank < comm.size(); ++rank)
    expected.insert(expected.end(), counts[static_cast<std::size_t>(rank)], 10 * rank);
  if (all != expected) return std::puts("wrong"), 1;
  std::printf("rank %d: ok, %zu samples of %d ranks\n", comm.rank(), all.size(), comm.size());
  return 0;
} catch (const gradsync::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
