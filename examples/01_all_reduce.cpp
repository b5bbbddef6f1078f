// The average of every rank's gradients, on every rank.
//
//   gradsync run -n 4 -- build/examples/01_all_reduce
#include <cstdio>
#include <vector>

#include "gradsync/gradsync.hpp"

int main() try {
  auto comm = gradsync::Communicator::create();  // rank, size and rendezvous from the environment

  std::vector<float> gradients(1'000'000, static_cast<float>(comm.rank()));
  comm.all_reduce(gradsync::view(gradients), gradsync::ReduceOp::avg);

  const float expected = static_cast<float>(comm.size() - 1) / 2;  // the mean of 0 … size - 1
  for (float gradient : gradients)
    if (gradient != expected) return std::printf("wrong: %g, expected %g\n", gradient, expected), 1;
  std::printf("rank %d of %d: %g\n", comm.rank(), comm.size(), gradients.front());
  return 0;
} catch (const gradsync::Error& error) {  // its text names the operation, the peer and the cause
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
