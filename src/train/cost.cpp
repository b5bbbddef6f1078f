#include "train/cost.hpp"

#include <algorithm>
#include <array>

#include "base/clock.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kSmallBytes = 64, kFirstLargeBytes = 64u << 10, kLargeBytesMax = 4u << 20;
constexpr double kLongEnough_s = 4e-3;  // of a large message: the clock and the scheduler are small against it
constexpr double kBudget_s = 0.05;      // of the repetitions of one size
constexpr int kSmallRoundsMax = 21, kLargeRoundsMax = 7;

// All-reduces of one size and how long they take, equally on all ranks: the largest.
class Probe {
 public:
  Probe(Communicator& comm, const Memory& memory) : comm_(comm), memory_(memory) {}

  double once(std::size_t bytes) { return agreed(timed(bytes)); }
  void warm_up() { timed(kSmallBytes); }  // opens the streams
  // The median of as many as fit the budget when one takes `expected_s`, which it is where hardly one fits.
  double median(std::size_t bytes, double expected_s, int rounds_max) {
    const double rounds = std::min(kBudget_s / std::max(expected_s, 1e-9), static_cast<double>(rounds_max));
    if (rounds < 2) return expected_s;
    std::vector<double> times(static_cast<std::size_t>(rounds) / 2 * 2 + 1);
    for (double& time : times) time = timed(bytes);
    std::ranges::sort(times);
    return agreed(times[times.size() / 2]);
  }

 private:
  double timed(std::size_t bytes) {
    const TimePoint start = std::chrono::steady_clock::now();
    comm_.all_reduce(View{memory_.data(), bytes / sizeof(float), DType::f32}, ReduceOp::sum);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  double agreed(double mine) {
    std::array<double, 1> largest = {mine};
    comm_.all_reduce(view(largest), ReduceOp::max);
    return largest[0];
  }

  Communicator& comm_;
  const Memory& memory_;
};

}  // namespace

MessageCost measure_cost(Communicator& comm) {
  if (comm.size() == 1) return {};
  const Memory memory = comm.allocate(kLargeBytesMax);
  Probe probe(comm, memory);
  probe.warm_up();
  const double small_s = probe.median(kSmallBytes, probe.once(kSmallBytes), kSmallRoundsMax);
  std::size_t large = kFirstLargeBytes;
  double once_s = probe.once(large);
  while (large < kLargeBytesMax && once_s < kLongEnough_s) once_s = probe.once(large *= 4);
  const double large_s = probe.median(large, once_s, kLargeRoundsMax);
  const double slope = (large_s - small_s) / static_cast<double>(large - kSmallBytes);
  return {.latency_s = small_s, .seconds_per_byte = std::max(slope, 1e-13)};
}

}  // namespace gradsync
