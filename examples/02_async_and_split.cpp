// Work that goes on while the next is computed, and groups of ranks.
//
//   gradsync run -n 4 -- build/examples/02_async_and_split
#include <cstdio>
#include <vector>

#include "gradsync/gradsync.hpp"

using gradsync::ReduceOp;

// One all-reduce a layer, started as soon as its gradients are there. The buffers live until the Work is done.
static bool layers(gradsync::Communicator& comm) {
  std::vector<std::vector<double>> gradients;
  for (std::size_t layer = 0; layer < 8; ++layer) gradients.emplace_back(1000 * (layer + 1), 1.0);

  std::vector<gradsync::Work> under_way;
  for (auto& layer : gradients)
    under_way.push_back(comm.all_reduce_async(gradsync::view(layer), gradsync::view(layer), ReduceOp::sum));
  for (auto& work : under_way) work.wait();  // throws if it failed

  for (const auto& layer : gradients)
    if (layer.back() != comm.size()) return false;
  return true;
}

// Even and odd ranks each on their own: a colour a group, ordered by the rank here.
static bool halves(gradsync::Communicator& comm) {
  auto half = comm.split(comm.rank() % 2);
  int ranks_here = 1;
  half.all_reduce(gradsync::View{&ranks_here, 1, gradsync::DType::i32}, ReduceOp::sum);
  return ranks_here == half.size() && half.rank() == comm.rank() / 2;
}

int main() try {
  auto comm = gradsync::Communicator::create();
  if (!layers(comm) || !halves(comm)) return std::puts("wrong"), 1;
  std::printf("rank %d: ok, %llu bytes sent\n", comm.rank(),
              static_cast<unsigned long long>(comm.counters().bytes_sent));
  return 0;
} catch (const gradsync::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
