// The least that an all-reduce of one host's ranks costs, measured in turn with the peers.
#include <immintrin.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
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
  void reduce(int thread, bool non_temporal) {
    const std::size_t half = count_ / 2 / kLanes * kLanes, whole = (count_ + kLanes - 1) / kLanes * kLanes;
    const Part part = thread == 0 ? Part{0, half} : Part{half, whole};
    if (non_temporal) reduce_mapped<true>(buffers_.size(), buffers_.data(), part);
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
  const bool non_temporal = command.way == "mapped_nt";
  Outcome out;
  for (const Span& s : together(
           2, command.iterations, [&](int t) { data.reduce(t, non_temporal); }, [&](int t) { data.fill(t); }))
    out.stamps.push_back({s.start_ns, s.start_ns, s.end_ns});
  out.wrong = data.right() ? 0 : 1;
  return out;
}

// A stamp whose duration is `ns`.
Stamp lasting(double ns) { return {0, 0, std::max<std::int64_t>(1, static_cast<std::int64_t>(ns))}; }

// Two threads on two cores hand a word back and forth.
Outcome hop(const Command& command) {
  constexpr int turns = 20000;
  struct alignas(128) Word {
    std::atomic<int> value{0};
  };
  std::vector<Word> word(2);
  int base = 0;
  const auto turn = [&](int t) {
    const auto mine = static_cast<std::size_t>(t);
    for (int i = base + 1; i <= base + turns; ++i) {
      if (t == 0) word[0].value.store(i, std::memory_order_release);
      while (word[1 - mine].value.load(std::memory_order_acquire) < i) {}
      if (t == 1) word[1].value.store(i, std::memory_order_release);
    }
  };
  Outcome out;
  std::atomic<int> left{0};
  const auto work = [&](int t) {
    turn(t);
    if (left.fetch_add(1) == 1) base += turns, left = 0;
    else
      while (left.load() != 0) {}
  };
  for (const Span& s : together(2, command.iterations, work))
    out.stamps.push_back(lasting(static_cast<double>(s.end_ns - s.start_ns) / turns / 2));
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
