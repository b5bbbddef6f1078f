#include "limits.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "bench/stream.hpp"
#include "rank.hpp"

namespace bench::limits {
namespace {

class Spin {
 public:
  explicit Spin(int threads) : threads_(threads) {}
  void wait() {
    const int generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
    } else {
      while (generation_.load(std::memory_order_acquire) == generation) __builtin_ia32_pause();
    }
  }

 private:
  int threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> generation_{0};
};

int cores() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

struct Arrays {
  explicit Arrays(std::size_t size) : bytes(size) {
    for (float*& a : array) a = static_cast<float*>(map(bytes));
  }
  ~Arrays() {
    for (float* a : array) unmap(a, bytes);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  std::size_t bytes;
  float* array[3] = {};
};

void copy_and_add(const std::string& place, std::size_t bytes, int threads, bool quick) {
  std::vector<std::unique_ptr<Arrays>> mine;
  for (int t = 0; t < threads; ++t) mine.push_back(std::make_unique<Arrays>(bytes));
  const std::size_t times = std::max<std::size_t>(1, (32u << 20) / bytes), count = bytes / sizeof(float);
  const auto rate = [&](const char* name, int streams, const std::function<void(Arrays&)>& once) {
    std::vector<double> seconds;
    for (const Span& s : together(threads, quick ? 3 : 7, [&](int t) {
           for (std::size_t i = 0; i < times; ++i) once(*mine[static_cast<std::size_t>(t)]);
         }))
      seconds.push_back(static_cast<double>(s.end_ns - s.start_ns) * 1e-9);
    const double moved = static_cast<double>(bytes) * static_cast<double>(times) * streams * threads;
    put(name, place + ", threads: " + std::to_string(threads), moved / median(seconds) / 1e9, "GB/s");
  };
  rate("memcpy", 2, [&](Arrays& a) { std::memcpy(a.array[0], a.array[1], bytes); });
  rate("copy", 2, [&](Arrays& a) { stream::copy(a.array[0], a.array[1], count); });
  rate("add", 3, [&](Arrays& a) {
    const float* from[] = {a.array[1], a.array[2]};
    stream::add(a.array[0], from, count);
  });
}

}  // namespace

void put(const std::string& name, const std::string& of, double value, const char* unit) {
  std::printf("limit\t%s\t%s\t%.6g\t%s\n", name.c_str(), of.c_str(), value, unit);
  std::fflush(stdout);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core % cores()), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void unpin() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core = 0; core < cores(); ++core) CPU_SET(static_cast<std::size_t>(core), &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void* map(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
  std::memset(memory, 0, bytes);
  return memory;
}

void unmap(void* memory, std::size_t bytes) { ::munmap(memory, bytes); }

std::vector<Span> together(int threads, int rounds, const std::function<void(int)>& work,
                           const std::function<void(int)>& before) {
  Spin spin(threads);
  std::vector<Span> each(static_cast<std::size_t>(threads)), spans;
  const auto body = [&](int t) {
    pin(t);
    for (int round = 0; round <= rounds; ++round) {  // the first warms up
      if (before) before(t);
      spin.wait();
      each[static_cast<std::size_t>(t)].start_ns = now_ns();
      work(t);
      each[static_cast<std::size_t>(t)].end_ns = now_ns();
      spin.wait();
      if (t == 0 && round > 0)
        spans.push_back(
            {std::ranges::max(each, {}, &Span::start_ns).start_ns, std::ranges::max(each, {}, &Span::end_ns).end_ns});
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& other : others) other.join();
  unpin();
  return spans;
}

void memory(bool quick) {
  for (const auto& [place, bytes] :
       {std::pair<const char*, std::size_t>{"L2", 256u << 10}, {"L3", 4u << 20}, {"DRAM", 256u << 20}})
    for (const int threads : {1, 2}) copy_and_add(place, bytes, threads, quick);
}

}  // namespace bench::limits

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string what = argc > 1 ? argv[1] : "";
  const bool quick = std::string(argv[argc - 1]) == "quick";
  if (what == "floor") bench::limits::floor();
  else if (what == "memory") bench::limits::memory(quick);
  else if (what == "serve" && argc > 2) bench::limits::serve(argv[2]);
  else if (what == "network" && argc > 3) bench::limits::network(argv[2], argv[3], quick);
  else return std::fprintf(stderr, "usage: limits floor | memory | serve ADDRESS | network ADDRESS LABEL [quick]\n"), 2;
}
