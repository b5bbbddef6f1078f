// Point to point: each rank hands activations to the next one, as the stages of a pipeline do, with a deadline of its own.
//
//   gradsync run -n 4 -- build/examples/05_send_and_recv
#include <chrono>
#include <cstdio>
#include <vector>

#include "gradsync/gradsync.hpp"

int main() try {
  using namespace std::chrono_literals;
  auto comm = gradsync::Communicator::create();
  const int next = comm.rank() + 1, previous = comm.rank() - 1;
  gradsync::CallOptions patient;
  patient.timeout = 30s;

  // Messages of one pair arrive in the order in which they were sent. They do not wait for collectives.
  for (int batch = 0; batch < 3; ++batch) {
    std::vector<float> activations(4096, static_cast<float>(batch));
    if (previous >= 0) comm.recv(gradsync::view(activations), previous, patient);
    for (float& value : activations) value += 1;
    if (next < comm.size()) comm.send(gradsync::view(activations), next, patient);

    const float expected = static_cast<float>(batch + comm.rank() + 1);  // each stage so far added one
    if (activations.back() != expected) return std::printf("wrong: %g\n", activations.back()), 1;
  }
  comm.barrier();
  std::printf("rank %d: ok\n", comm.rank());
  return 0;
} catch (const gradsync::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
