// The kernels beside what memory gives, in one run: each iteration times a kernel and then, over the same number of streams
// and of bytes, a plain loop that does next to nothing (stream.hpp). Rates are of bytes read and written; `limit` is the
// loop's and `of_limit` the kernel's share of it, above 1 where the kernel is the better loop.
//
//   kernels_bench --benchmark_filter=f32/sum
//
// Wide types: f16 and bf16 accumulate in f32, so that their reductions are widen, a combine of f32, and finish. Division
// (finish of avg of integers) is bound by arithmetic, and far below the limit by nature.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/stream.hpp"
#include "kernels/kernels.hpp"

namespace {

using namespace gradsync;

constexpr std::size_t kSizes[] = {32u << 10, 1u << 20, 64u << 20};  // of one stream: L1 or L2, L2 or L3, memory

struct Free {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using Array = std::unique_ptr<std::byte[], Free>;

// Bytes of 0x3f: moderate numbers in every type, which stay finite under repeated min, max and sum.
Array array_of(std::size_t bytes) {
  Array a(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{64})));
  std::memset(a.get(), 0x3f, bytes);
  return a;
}

template <class T>
T* as(const Array& a) {
  return reinterpret_cast<T*>(a.get());
}

// `bytes` are those that either reads and writes. Short work is repeated, so that the clock does not count.
void beside(benchmark::State& state, std::size_t bytes, const std::function<void()>& kernel,
            const std::function<void()>& limit) {
  using Clock = std::chrono::steady_clock;
  const std::size_t times = std::max<std::size_t>(1, (1u << 20) / bytes);
  const auto seconds = [times](const std::function<void()>& work) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < times; ++i) {
      work();
      benchmark::ClobberMemory();
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(times);
  };
  kernel(), limit();
  double kernel_s = 0, limit_s = 0, rounds = 0;
  for (auto _ : state) {
    const double spent = seconds(kernel);
    state.SetIterationTime(spent);
    kernel_s += spent, limit_s += seconds(limit), rounds += 1;
  }
  const double moved = static_cast<double>(bytes) * rounds;
  state.counters["GB/s"] = moved / kernel_s / 1e9;
  state.counters["limit"] = moved / limit_s / 1e9;
  state.counters["of_limit"] = limit_s / kernel_s;
}

// `ways` inputs of `bytes` each into the first.
void combine(benchmark::State& state, kernels::Work work, ReduceOp op, std::size_t ways, std::size_t bytes) {
  std::vector<Array> inputs;
  std::vector<const void*> pointers;
  std::vector<const float*> floats;
  for (std::size_t k = 0; k < ways; ++k) {
    pointers.push_back(inputs.emplace_back(array_of(bytes)).get());
    floats.push_back(as<float>(inputs.back()));
  }
  void* into = inputs[0].get();
  const std::size_t count = bytes / kernels::size_of(work);
  beside(
      state, (ways + 1) * bytes, [&] { kernels::combine_many(work, op, into, pointers, count); },
      [&] { bench::stream::add(as<float>(inputs[0]), floats, bytes / sizeof(float)); });
}

void combine_few(benchmark::State& state, std::size_t count) {
  const Array a = array_of(4 * count), b = array_of(4 * count);
  for (auto _ : state) {
    kernels::combine(kernels::Work::f32, ReduceOp::sum, a.get(), b.get(), count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(12 * count));
}

void divide_sum(benchmark::State& state, kernels::Work work, std::size_t bytes) {
  const Array a = array_of(bytes), b = array_of(bytes);
  const float* floats[] = {as<float>(a), as<float>(b)};
  beside(
      state, 3 * bytes, [&] { kernels::combine_and_divide(work, 7, a.get(), b.get(), bytes / kernels::size_of(work)); },
      [&] { bench::stream::add(as<float>(a), floats, bytes / sizeof(float)); });
}

// `bytes` of the narrow type; to f32, and back with the division.
void widen(benchmark::State& state, DType dtype, std::size_t bytes) {
  const Array narrow = array_of(bytes), wide = array_of(2 * bytes);
  beside(
      state, 3 * bytes, [&] { kernels::widen(dtype, kernels::Work::f32, wide.get(), narrow.get(), bytes / 2); },
      [&] { bench::stream::widen(as<std::uint32_t>(wide), as<std::uint16_t>(narrow), bytes / 2); });
}

void finish(benchmark::State& state, DType dtype, ReduceOp op, std::size_t bytes) {
  const kernels::Work work = kernels::work_of(dtype, op);
  const std::size_t count = bytes / size_of(dtype), wide_bytes = count * kernels::size_of(work);
  const Array narrow = array_of(bytes), wide = array_of(wide_bytes), limit_wide = array_of(2 * bytes);
  const bool equal = wide_bytes == bytes;
  // Types of one size are copied; of others, the narrowing loop has the same ratio of reads to writes for 16 bits in 32.
  beside(
      state, bytes + wide_bytes, [&] { kernels::finish(dtype, op, work, 7, narrow.get(), wide.get(), count); },
      [&] {
        if (equal) bench::stream::copy(as<float>(narrow), as<float>(wide), bytes / sizeof(float));
        else bench::stream::narrow(as<std::uint16_t>(narrow), as<std::uint32_t>(limit_wide), bytes / 2);
      });
}

std::string title(std::string_view kind, std::string_view what, std::string_view op, std::size_t bytes) {
  return std::string(kind) + "/" + std::string(what) + "/" + std::string(op) + "/" + std::to_string(bytes >> 10) + "K";
}

template <class Function, class... Arguments>
void add(const std::string& name, Function function, Arguments... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), function, arguments...)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void register_combines(std::size_t bytes) {
  const auto combines = [bytes](DType dtype, ReduceOp op, std::size_t ways) {
    add(title("combine" + std::to_string(ways), name_of(dtype), name_of(op), bytes), combine, kernels::same_as(dtype),
        op, ways, bytes);
  };
  for (const DType dtype :
       {DType::f32, DType::f64, DType::i8, DType::u8, DType::i32, DType::u32, DType::i64, DType::u64})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::max}) combines(dtype, op, 2);
  for (const DType dtype : {DType::f16, DType::bf16}) combines(dtype, ReduceOp::max, 2);
  for (const std::size_t ways : {3u, 4u, 8u})
    for (const DType dtype : {DType::f32, DType::f64, DType::u8, DType::i32, DType::i64})
      combines(dtype, ReduceOp::sum, ways);
}

void register_conversions(std::size_t bytes) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    add(title("widen", name_of(dtype), "f32", bytes), widen, dtype, bytes);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
      add(title("finish", name_of(dtype), name_of(op), bytes), finish, dtype, op, bytes);
  }
  for (const DType dtype : {DType::f32, DType::f64, DType::i64})
    add(title("finish", name_of(dtype), "avg", bytes), finish, dtype, ReduceOp::avg, bytes);
  for (const kernels::Work work : {kernels::Work::f32, kernels::Work::f64})
    add(title("combine_and_divide", work == kernels::Work::f32 ? "f32" : "f64", "avg", bytes), divide_sum, work, bytes);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::size_t bytes : kSizes) {
    register_combines(bytes);
    register_conversions(bytes);
  }
  for (const std::size_t count : {1u, 15u, 16u, 100u, 1000u})
    benchmark::RegisterBenchmark(("few/f32/sum/" + std::to_string(count)).c_str(), combine_few, count);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
