#include "rank.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace bench {
namespace {

std::int64_t clock_ns(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

const char* from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value != nullptr) return value;
  std::fprintf(stderr, "%s is not set: this program is started by bench/peers/run\n", name);
  std::exit(2);
}

class Link {
 public:
  Link() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, from_environment("BENCH_SOCKET"), sizeof address.sun_path - 1);
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("connect to the driver");
  }
  bool next(Command& c) {
    std::string line;
    for (char ch = 0; ch != '\n'; line += ch)
      if (::read(fd_, &ch, 1) != 1) return false;
    std::array<char, 64> way{};
    if (std::sscanf(line.c_str(), "run %63s %zu %d %d %d", way.data(), &c.bytes, &c.warm_up, &c.iterations,
                    &c.barrier) != 5)
      return false;
    c.way = way.data();
    return true;
  }
  void send(const void* data, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t sent = ::write(fd_, at, bytes);
      if (sent <= 0) die("write to the driver");
      at += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
  }
  void send(const std::string& text) { send(text.data(), text.size()); }

 private:
  int fd_ = -1;
};

// In barrier mode (large sizes) processor time is taken around each call, so that filling and checking do not count; in the
// other mode around the loop, where they are small beside the call.
Outcome run(const Contender& who, const Command& c, Barrier& barrier, const Pattern& pattern) {
  const std::size_t count = c.bytes / sizeof(float);
  const Call call = who.prepare(c.way, count);
  Outcome out;
  pattern.fill(call.data, count, 0);
  barrier.wait();
  const std::int64_t cpu_before = cpu_ns();
  for (int i = 0; i < c.warm_up + c.iterations; ++i) {
    const unsigned shift = static_cast<unsigned>(i) * 17u;
    pattern.fill(call.data, count, shift);
    Stamp stamp{c.barrier != 0 ? barrier.wait() : 0, 0, 0};
    const std::int64_t cpu_start = c.barrier != 0 ? cpu_ns() : 0;
    stamp.start = now_ns();
    call.all_reduce();
    stamp.end = now_ns();
    if (c.barrier != 0 && i >= c.warm_up) out.cpu_ns += cpu_ns() - cpu_start;
    if (c.barrier != 0 && who.settle) who.settle();
    if (!pattern.is_sum(call.data, count, shift)) ++out.wrong;
    if (i >= c.warm_up) out.stamps.push_back(stamp);
  }
  if (who.settle) who.settle();
  if (c.barrier == 0) out.cpu_ns = (cpu_ns() - cpu_before) * c.iterations / std::max(1, c.warm_up + c.iterations);
  barrier.wait();
  return out;
}

}  // namespace

void die(const char* what) {
  std::perror(what);
  std::exit(2);
}

std::int64_t now_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::int64_t cpu_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

int number_from_environment(const char* name) { return std::atoi(from_environment(name)); }

int open_descriptors() {
  int count = -1;  // the one that reads the folder
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

struct Barrier::Phase {
  alignas(64) std::atomic<std::uint32_t> generation;
  alignas(64) std::atomic<std::uint32_t> arrived;
  alignas(64) std::atomic<std::int64_t> release_ns;
};

Barrier::Barrier(const char* path, int ranks) : ranks_(ranks), core_each_(ranks <= ::sysconf(_SC_NPROCESSORS_ONLN)) {
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, 2 * sizeof(Phase)) != 0) die(path);
  void* memory = ::mmap(nullptr, 2 * sizeof(Phase), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) die("mmap of the barrier");
  ::close(fd);
  phases_ = static_cast<Phase*>(memory);
}

std::int64_t Barrier::wait() {
  const std::int64_t opened = meet(phases_[0], false);
  return core_each_ ? meet(phases_[1], true) : opened;
}

std::int64_t Barrier::meet(Phase& phase, bool spin) {
  const std::uint32_t generation = phase.generation.load(std::memory_order_acquire);
  if (phase.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(ranks_)) {
    phase.arrived.store(0, std::memory_order_relaxed);
    const std::int64_t now = now_ns();
    phase.release_ns.store(now, std::memory_order_relaxed);
    phase.generation.store(generation + 1, std::memory_order_release);
    if (!spin) ::syscall(SYS_futex, &phase.generation, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return now;
  }
  while (phase.generation.load(std::memory_order_acquire) == generation) {
    if (spin) __builtin_ia32_pause();
    else ::syscall(SYS_futex, &phase.generation, FUTEX_WAIT, generation, nullptr, nullptr, 0);
  }
  return phase.release_ns.load(std::memory_order_relaxed);
}

namespace {

// Never 0, as -0 would differ from it; at most 61.
float value_of(int rank, std::size_t i) {
  std::uint32_t hash = static_cast<std::uint32_t>(i) * 2654435761u + static_cast<std::uint32_t>(rank) * 40503u;
  hash ^= hash >> 15;
  return static_cast<float>(hash % 61 + 1);
}

template <class Each>
bool all_periods(const std::vector<float>& table, std::size_t count, unsigned shift, Each&& each) {
  const float* from = table.data() + shift % Pattern::period;
  for (std::size_t at = 0; at < count; at += Pattern::period)
    if (!each(at, from, std::min(Pattern::period, count - at) * sizeof(float))) return false;
  return true;
}

}  // namespace

Pattern::Pattern(int rank, int ranks) : mine_(2 * period), sum_(2 * period) {
  for (std::size_t i = 0; i < 2 * period; ++i) {
    mine_[i] = value_of(rank, i % period);
    for (int r = 0; r < ranks; ++r) sum_[i] += value_of(r, i % period);
  }
}

void Pattern::fill(float* data, std::size_t count, unsigned shift) const {
  all_periods(mine_, count, shift, [&](std::size_t at, const float* from, std::size_t bytes) {
    std::memcpy(data + at, from, bytes);
    return true;
  });
}

bool Pattern::is_sum(const float* data, std::size_t count, unsigned shift) const {
  return all_periods(sum_, count, shift, [&](std::size_t at, const float* from, std::size_t bytes) {
    return std::memcmp(data + at, from, bytes) == 0;
  });
}

std::shared_ptr<void> ordinary_memory(std::size_t bytes) {
  const std::size_t rounded = std::max<std::size_t>(64, (bytes + 63) / 64 * 64);
  void* memory = std::aligned_alloc(64, rounded);
  if (memory == nullptr) die("memory for the data");
  std::memset(memory, 0, rounded);
  return {memory, std::free};
}

void serve(const Contender& who) {
  const std::int64_t joined = now_ns();
  const int descriptors_joined = open_descriptors();
  const char* first_way = std::getenv("BENCH_FIRST");
  if (who.prepare) who.prepare(first_way != nullptr ? first_way : "default", 16).all_reduce();
  const std::int64_t first = now_ns();
  const int descriptors_first = open_descriptors();
  Barrier barrier(from_environment("BENCH_BARRIER"), who.ranks);
  const Pattern pattern(who.rank, who.ranks);
  Link link;
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), "hello %s %d %d %d %lld %lld %d %d\n", who.name.c_str(), who.rank, who.ranks,
                static_cast<int>(::getpid()), static_cast<long long>(joined), static_cast<long long>(first),
                descriptors_joined, descriptors_first);
  link.send(std::string(line.data()));
  for (Command command; link.next(command);) {
    const Outcome out = who.measure ? who.measure(command) : run(who, command, barrier, pattern);
    std::snprintf(line.data(), line.size(), "ok %zu %lld %d\n", out.stamps.size(), static_cast<long long>(out.cpu_ns),
                  out.wrong);
    link.send(std::string(line.data()));
    link.send(out.stamps.data(), out.stamps.size() * sizeof(Stamp));
  }
}

}  // namespace bench
