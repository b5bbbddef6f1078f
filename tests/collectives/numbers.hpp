// Element values as bits, and what reductions of them must give: plain scalar code that shares nothing with the kernels.
#pragma once

#include <cstdint>
#include <span>

#include "gradsync/types.hpp"

namespace gradsync::test {

// The bits of one element, in the low size_of(dtype) bytes.
using Bits = std::uint64_t;

// Any finite or infinite float; exact.
double value_of(DType dtype, Bits bits);
// Rounds once, to nearest even.
Bits bits_of(DType dtype, double value);

// What a rank contributes. Floats for sum, avg and product are such that every partial result is exact in the type in
// which a reduction accumulates (f32 for 16 bits), whatever the order, while a 16-bit result needs its one rounding:
//   sum, avg: whole numbers below 2^11 (f16), 2^8 (bf16), 2^20 (f32), 2^49 (f64), times a power of two that all ranks
//   share at a position; 8 of them stay below 2^24 (2^53). product: ±{1/2, 1, 3/2, 2, 3}; 8 of them need 13 bits.
// min and max get any bits but NaN; integers any bits.
Bits exact_contribution(DType dtype, ReduceOp op, std::uint32_t rank, std::uint64_t position);
inline constexpr std::uint32_t kExactRanksMax = 8;

// Floats whose exponents are spread over as much as their sum can bear without overflow.
Bits wide_contribution(DType dtype, std::uint32_t rank, std::uint64_t position);

// The reduction of what all ranks contribute at one position; requires it to be exact as above. In min and max -0 < +0.
Bits reduced(DType dtype, ReduceOp op, std::span<const Bits> contributions);

// The sum (or average) of floats, and how far any order of additions in the accumulating type, with the final division
// and rounding, may be from it.
//   Summing N terms in any order with unit roundoff u errs by at most (N-1)u/(1-(N-1)u) · Σ|x| (Higham, Accuracy and
//   Stability of Numerical Algorithms, 2nd ed., (4.6)), which is below (N-1)·2u·Σ|x|. A division and a rounding to
//   unit roundoff v each err by at most v·|result|, or half a subnormal.
struct Interval {
  long double middle = 0, radius = 0;
};
Interval bounded(DType dtype, ReduceOp op, std::span<const Bits> contributions);

}  // namespace gradsync::test
