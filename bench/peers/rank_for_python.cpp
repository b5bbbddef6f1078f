// The clocks, the barrier and the pattern, for a rank written in Python (ctypes).
#include <memory>

#include "rank.hpp"

namespace {
std::unique_ptr<bench::Barrier> barrier;
std::unique_ptr<bench::Pattern> pattern;
}  // namespace

extern "C" {
void bench_open(const char* path, int rank, int ranks) {
  barrier = std::make_unique<bench::Barrier>(path, ranks);
  pattern = std::make_unique<bench::Pattern>(rank, ranks);
}
std::int64_t bench_barrier() { return barrier->wait(); }
void bench_fill(float* data, std::size_t count, unsigned shift) { pattern->fill(data, count, shift); }
int bench_is_sum(const float* data, std::size_t count, unsigned shift) { return pattern->is_sum(data, count, shift); }
std::int64_t bench_now() { return bench::now_ns(); }
std::int64_t bench_cpu() { return bench::cpu_ns(); }
int bench_descriptors() { return bench::open_descriptors(); }
}
