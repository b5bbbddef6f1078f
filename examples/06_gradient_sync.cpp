// Gradients of one's own, kept in step: least squares for y = 3x + 1, where every rank has another number of samples.
//
//   gradsync run -n 4 -- build/examples/06_gradient_sync
#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "gradsync/gradsync.hpp"

namespace {

std::span<double> gradient(gradsync::GradientSync& sync, std::size_t parameter) {
  const gradsync::View view = sync.gradient(parameter);
  return {static_cast<double*>(view.data), view.count};
}

}  // namespace

int main() try {
  auto comm = gradsync::Communicator::create();
  gradsync::GradientSyncOptions options;
  options.weighted = true;  // the mean over samples, not over ranks
  gradsync::GradientSync sync(comm, {{"slope", {1}, gradsync::DType::f64}, {"shift", {1}, gradsync::DType::f64}},
                              options);

  const int samples = 2 + 5 * comm.rank();
  double slope = 0, shift = 0;
  for (int step = 0; step < 500; ++step) {
    sync.begin_step();
    sync.set_samples(static_cast<std::uint64_t>(samples));
    double of_slope = 0, of_shift = 0;  // the mean over this rank's samples
    for (int i = 0; i < samples; ++i) {
      const double x = std::sin(i + comm.rank()), error = slope * x + shift - (3 * x + 1);
      of_slope += error * x / samples;
      of_shift += error / samples;
    }
    gradient(sync, 1)[0] = of_shift;  // a gradient is written where it lives …
    sync.ready(1);                    // … and leaves when its bucket is full
    gradient(sync, 0)[0] = of_slope;
    sync.ready(0);
    sync.finish();  // now the mean over the samples of all ranks
    slope -= gradient(sync, 0)[0];
    shift -= gradient(sync, 1)[0];
  }
  if (std::abs(slope - 3) > 1e-9 || std::abs(shift - 1) > 1e-9) return std::puts("wrong"), 1;
  std::printf("rank %d: ok, y = %.3fx + %.3f from %llu samples of %d ranks\n", comm.rank(), slope, shift,
              static_cast<unsigned long long>(sync.total_samples()), comm.size());
  return 0;
} catch (const gradsync::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
