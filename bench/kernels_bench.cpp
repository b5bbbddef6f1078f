// Bytes per second of the kernels against what memory gives: memcpy, and a plain a[i] += b[i]. Bytes are those read and
// written, so that a number compares with memcpy's directly. kernels_bench --benchmark_filter=f32/sum
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

namespace {

using namespace gradsync;

constexpr std::size_t kSizes[] = {32u << 10, 1u << 20, 64u << 20};  // L1 or L2, L2 or L3, memory

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

void count_bytes(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(bytes));
}

void copy(benchmark::State& state, std::size_t bytes) {
  const Array a = array_of(bytes), b = array_of(bytes);
  for (auto _ : state) {
    std::memcpy(a.get(), b.get(), bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * bytes);
}

void plain_add(benchmark::State& state, std::size_t bytes) {
  const Array x = array_of(bytes), y = array_of(bytes);
  auto* __restrict a = reinterpret_cast<float*>(x.get());
  const auto* __restrict b = reinterpret_cast<const float*>(y.get());
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) a[i] += b[i];
    benchmark::ClobberMemory();
  }
  count_bytes(state, 3 * bytes);
}

// `ways` inputs of `bytes` each into the first.
void combine(benchmark::State& state, kernels::Work work, ReduceOp op, std::size_t ways, std::size_t bytes) {
  std::vector<Array> inputs;
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < ways; ++k) pointers.push_back(inputs.emplace_back(array_of(bytes)).get());
  const std::size_t count = bytes / kernels::size_of(work);
  for (auto _ : state) {
    kernels::combine_many(work, op, inputs[0].get(), pointers, count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, (ways + 1) * bytes);
}

void combine_few(benchmark::State& state, std::size_t count) {
  const Array a = array_of(4 * count), b = array_of(4 * count);
  for (auto _ : state) {
    kernels::combine(kernels::Work::f32, ReduceOp::sum, a.get(), b.get(), count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 12 * count);
}

// `bytes` of the narrow type; to f32, and back with the division.
void widen(benchmark::State& state, DType dtype, std::size_t bytes) {
  const Array narrow = array_of(bytes), wide = array_of(2 * bytes);
  for (auto _ : state) {
    kernels::widen(dtype, kernels::Work::f32, wide.get(), narrow.get(), bytes / 2);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 3 * bytes);
}

void finish(benchmark::State& state, DType dtype, ReduceOp op, std::size_t bytes) {
  const kernels::Work work = kernels::work_of(dtype, op);
  const std::size_t count = bytes / size_of(dtype), wide_bytes = count * kernels::size_of(work);
  const Array narrow = array_of(bytes), wide = array_of(wide_bytes);
  for (auto _ : state) {
    kernels::finish(dtype, op, work, 7, narrow.get(), wide.get(), count);
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes + wide_bytes);
}

std::string title(std::string_view kind, std::string_view what, std::string_view op, std::size_t bytes) {
  return std::string(kind) + "/" + std::string(what) + "/" + std::string(op) + "/" + std::to_string(bytes >> 10) + "K";
}

void register_combines(std::size_t bytes) {
  const auto add = [bytes](DType dtype, ReduceOp op, std::size_t ways) {
    const std::string kind = "combine" + std::to_string(ways);
    benchmark::RegisterBenchmark(title(kind, name_of(dtype), name_of(op), bytes).c_str(), combine,
                                 kernels::same_as(dtype), op, ways, bytes);
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::u8})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::max}) add(dtype, op, 2);
  for (const DType dtype : {DType::f16, DType::bf16}) add(dtype, ReduceOp::max, 2);
  for (const std::size_t ways : {3u, 4u, 8u})
    for (const DType dtype : {DType::f32, DType::i32}) add(dtype, ReduceOp::sum, ways);
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::size_t bytes : kSizes) {
    benchmark::RegisterBenchmark(title("memory", "bytes", "memcpy", bytes).c_str(), copy, bytes);
    benchmark::RegisterBenchmark(title("memory", "f32", "plain_add", bytes).c_str(), plain_add, bytes);
    register_combines(bytes);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      benchmark::RegisterBenchmark(title("widen", name_of(dtype), "f32", bytes).c_str(), widen, dtype, bytes);
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        benchmark::RegisterBenchmark(title("finish", name_of(dtype), name_of(op), bytes).c_str(), finish, dtype, op,
                                     bytes);
    }
    for (const DType dtype : {DType::f32, DType::i32, DType::i64})
      benchmark::RegisterBenchmark(title("finish", name_of(dtype), "avg", bytes).c_str(), finish, dtype, ReduceOp::avg,
                                   bytes);
  }
  for (const std::size_t count : {1u, 15u, 16u, 100u, 1000u})
    benchmark::RegisterBenchmark(("few/f32/sum/" + std::to_string(count)).c_str(), combine_few, count);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
