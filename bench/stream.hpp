// Plain loops over arrays, compiled for the very machine: what its memory gives to whoever does next to nothing with the
// bytes, in STREAM's manner (J. D. McCalpin). The yardstick of the kernels and of the report's memory bandwidths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bench::stream {

void copy(float* into, const float* from, std::size_t count);
// into[i] = from[0][i] + from[1][i] + …; 2, 3, 4 or 8 of them, the first of which may be `into`.
void add(float* into, std::span<const float* const> from, std::size_t count);
void widen(std::uint32_t* into, const std::uint16_t* from, std::size_t count);   // reads 2 bytes, writes 4
void narrow(std::uint16_t* into, const std::uint32_t* from, std::size_t count);  // reads 4 bytes, writes 2

}  // namespace bench::stream
