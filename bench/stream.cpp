#include "stream.hpp"

#include <cstdlib>

namespace bench::stream {
namespace {

template <std::size_t Ways>
void add_ways(float* into, std::span<const float* const> from, std::size_t count) {
  const float* p[Ways];
  for (std::size_t k = 0; k < Ways; ++k) p[k] = from[k];
#pragma omp simd  // `into` is the first input or apart from all
  for (std::size_t i = 0; i < count; ++i) {
    float sum = p[0][i];
#pragma GCC unroll 8
    for (std::size_t k = 1; k < Ways; ++k) sum += p[k][i];
    into[i] = sum;
  }
}

}  // namespace

void copy(float* __restrict into, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = from[i];
}

void add(float* into, std::span<const float* const> from, std::size_t count) {
  switch (from.size()) {
    case 2: return add_ways<2>(into, from, count);
    case 3: return add_ways<3>(into, from, count);
    case 4: return add_ways<4>(into, from, count);
    case 8: return add_ways<8>(into, from, count);
    default: std::abort();
  }
}

void widen(std::uint32_t* __restrict into, const std::uint16_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = std::uint32_t{from[i]} << 16;
}

void narrow(std::uint16_t* __restrict into, const std::uint32_t* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = static_cast<std::uint16_t>(from[i] >> 16);
}

}  // namespace bench::stream
