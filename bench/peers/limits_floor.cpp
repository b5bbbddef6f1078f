// The least that an all-reduce of one host's ranks costs, measured in turn with the peers.
#include <immintrin.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "limits.hpp"
#include "rank.hpp"

namespace bench::limits {
namespace {

#if defined(__AVX512F__)
using Vector = __m512;
Vector load(const float* p) { return _mm512_load_ps(p); }
Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
void store(float* p, Vector v) { _mm512_store_ps(p, v); }
void stream(float* p, Vector v) { _mm512_stream_ps(p, v); }
#elif defined(__AVX__)
using Vector = __m256;
Vector load(const float* p) { return _mm256_load_ps(p); }
Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
void store(float* p, Vector v) { _mm256_store_ps(p, v); }
void stream(float* p, Vector v) { _mm256_stream_ps(p, v); }
#else
using Vector = __m128;
Vector load(const float* p) { return _mm_load_ps(p); }
Vector add(Vector a, Vector b) { return _mm_add_ps(a, b); }
void store(float* p, Vector v) { _mm_store_ps(p, v); }
void stream(float* p, Vector v) { _mm_stream_ps(p, v); }
#endif
constexpr std::size_t kLanes = sizeof(Vector) / sizeof(float);

struct Part {
  std::size_t from, to;
};

// Every element is read once from each buffer and its sum written to each: nothing that leaves the sum in N memories can
// do less.
template <int N, bool NonTemporal>
void reduce_mapped(float* const* buffer, Part part) {
  for (std::size_t i = part.from; i < part.to; i += kLanes) {
    Vector sum = load(buffer[0] + i);
    for (int k = 1; k < N; ++k) sum = add(sum, load(buffer[k] + i));
    for (int k = 0; k < N; ++k) {
      if constexpr (NonTemporal) stream(buffer[k] + i, sum);
      else store(buffer[k] + i, sum);
    }
  }
  if constexpr (NonTemporal) _mm_sfence();
}

template <bool NonTemporal>
void reduce_mapped(std::size_t ranks, float* const* buffer, Part part) {
  switch (ranks) {
    case 2: return reduce_mapped<2, NonTemporal>(buffer, part);
    case 3: return reduce_mapped<3, NonTemporal>(buffer, part);
    case 4: return reduce_mapped<4, NonTemporal>(buffer, part);
    case 8: return reduce_mapped<8, NonTemporal>(buffer, part);
    default: throw std::invalid_argument("the floor is measured for 2, 3, 4 and 8 ranks");
  }
}

// The same work a cache-sized block at a time, with fewer streams at once: memory likes that better.
void reduce_blocks(const std::vector<float*>& buffers, Part part) {
  constexpr std::size_t block = 4096;
  for (std::size_t from = part.from; from < part.to; from += block) {
    const std::size_t to = std::min(part.to, from + block);
    for (std::size_t i = from; i < to; i += kLanes) {
      Vector sum = load(buffers[0] + i);
      for (std::size_t k = 1; k < buffers.size(); ++k) sum = add(sum, load(buffers[k] + i));
      store(buffers[0] + i, sum);
    }
    for (std::size_t k = 1; k < buffers.size(); ++k)
      for (std::size_t i = from; i < to; i += kLanes) store(buffers[k] + i, load(buffers[0] + i));
  }
}

class Mapped {
 public:
  Mapped(std::size_t ranks, std::size_t bytes) : bytes_(std::max<std::size_t>(4096, bytes)), count_(bytes / 4) {
    for (std::size_t k = 0; k < ranks; ++k) buffers_.push_back(static_cast<float*>(map(bytes_)));
  }
  ~Mapped() {
    for (float* buffer : buffers_) unmap(buffer, bytes_);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  // As ranks do: each buffer is written by the core that owns it, so the traffic between cores is in the figure.
  void fill(int thread) {
    for (auto k = static_cast<std::size_t>(thread); k < buffers_.size(); k += 2)
      std::fill_n(buffers_[k], bytes_ / sizeof(float), 1.0f);
  }
  void reduce(int thread, const std::string& way) {
    const std::size_t half = count_ / 2 / kLanes * kLanes, whole = (count_ + kLanes - 1) / kLanes * kLanes;
    const Part part = thread == 0 ? Part{0, half} : Part{half, whole};
    if (way == "mapped_blocks") reduce_blocks(buffers_, part);
    else if (way == "mapped_nt") reduce_mapped<true>(buffers_.size(), buffers_.data(), part);
    else reduce_mapped<false>(buffers_.size(), buffers_.data(), part);
  }
  bool right() const {
    const auto sum = static_cast<float>(buffers_.size());
    return std::ranges::all_of(
        buffers_, [&](const float* b) { return std::all_of(b, b + count_, [&](float x) { return x == sum; }); });
  }

 private:
  std::size_t bytes_, count_;
  std::vector<float*> buffers_;
};

Outcome mapped(std::size_t ranks, const Command& command) {
  Mapped data(ranks, command.bytes);
  Outcome out;
  for (const Span& s : together(
           2, command.iterations, [&](int t) { data.reduce(t, command.way); }, [&](int t) { data.fill(t); }))
    out.stamps.push_back({s.start_ns, s.start_ns, s.end_ns});
  out.wrong = data.right() ? 0 : 1;
  return out;
}

// A stamp whose duration is `ns`.
Stamp lasting(double ns) { return {0, 0, std::max<std::int64_t>(1, static_cast<std::int64_t>(ns))}; }

struct alignas(128) Word {
  std::atomic<int> value{0};
};

void hand_over(std::array<Word, 2>& words, int thread, int turns) {
  Word &mine = words[static_cast<std::size_t>(thread)], &other = words[static_cast<std::size_t>(1 - thread)];
  for (int i = 1; i <= turns; ++i) {
    if (thread == 0) mine.value.store(i, std::memory_order_release);
    while (other.value.load(std::memory_order_acquire) < i) {}
    if (thread == 1) mine.value.store(i, std::memory_order_release);
  }
}

// Two threads on two cores hand a word back and forth; each time in other memory, as the place matters.
Outcome hop(const Command& command) {
  constexpr int turns = 5000;
  Outcome out;
  std::vector<std::unique_ptr<std::array<Word, 2>>> places;
  for (int i = 0; i < command.iterations; ++i) {
    for (int round = 0; round < 2; ++round) places.push_back(std::make_unique<std::array<Word, 2>>());
    auto next = std::array<std::size_t, 2>{places.size() - 2, places.size() - 2};
    for (const Span& s :
         together(2, 1, [&](int t) { hand_over(*places[next[static_cast<std::size_t>(t)]++], t, turns); }))
      out.stamps.push_back(lasting(static_cast<double>(s.end_ns - s.start_ns) / turns / 2));
  }
  return out;
}

// Two processes on one core give way to each other.
Outcome change_of_process(const Command& command) {
  constexpr int turns = 20000;
  Outcome out;
  pin(0);
  for (int i = 0; i < command.iterations; ++i) {
    const pid_t child = ::fork();
    if (child < 0) die("fork");
    const std::int64_t start = now_ns();
    for (int k = 0; k < turns; ++k) ::sched_yield();
    if (child == 0) ::_exit(0);
    out.stamps.push_back(lasting(static_cast<double>(now_ns() - start) / turns / 2));
    ::waitpid(child, nullptr, 0);
  }
  unpin();
  return out;
}

}  // namespace

void floor() {
  const auto ranks = static_cast<std::size_t>(number_from_environment("BENCH_FLOOR_RANKS"));
  Contender me;
  me.name = "limit";
  me.measure = [ranks](const Command& command) {
    if (command.way == "hop") return hop(command);
    if (command.way == "switch") return change_of_process(command);
    return mapped(ranks, command);
  };
  bench::serve(me);
}

}  // namespace bench::limits
