// Arithmetic on arrays: combining, converting, dividing. Run-time dispatch picks the widest instruction set present.
//
// Combining is commutative to the bit: combine(a, b) and combine(b, a) leave equal bits, because every NaN that comes out
// is the canonical quiet NaN (sign clear, only the top mantissa bit set). min and max propagate NaN, and -0 < +0.
// Results do not depend on the caller's floating-point environment: rounding is to nearest even and subnormals count,
// whatever the thread's mode bits (FTZ, DAZ, rounding, traps) say. Every instruction set yields the same bits.
//
// In booleans any nonzero byte is true; every combine, and finish, leaves 0 or 1.
// Asking for a pair that is not `defined`, or a conversion that no reduction needs, is a bug and aborts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "gradsync/types.hpp"

namespace gradsync::kernels {

// The type in which a reduction accumulates and travels, wide enough that rounding (floats) or truncation (avg of
// integers) happens once, at the end: f16 and bf16 sum, avg and product in f32; avg of i8, u8, i32, u32 in i64; avg of
// i64, u64 in 128 bits; all else in its own type. Only these are ever combined.
enum class Work : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, boolean, i128, u128 };
Work work_of(DType dtype, ReduceOp op);
std::size_t size_of(Work work);
Work same_as(DType dtype);             // the Work of that very representation
bool defined(Work work, ReduceOp op);  // whether some supported (dtype, op) accumulates in `work`

// into[i] = into[i] op from[i], i < count. `avg` combines as sum. No overlap unless into == from. Any alignment.
// `also` is a second place for the result, if not null; it may be `from` (same address) but not overlap otherwise.
void combine(Work work, ReduceOp op, void* into, const void* from, std::size_t count, void* also = nullptr);

// into[i] = from[0][i] op from[1][i] op … in that order, in one pass; from.size() >= 1. `into` may be any from[k]
// (same address) but not overlap otherwise. Bits are those of repeated combine; one input is copied.
void combine_many(Work work, ReduceOp op, void* into, std::span<const void* const> from, std::size_t count);

// combine and then finish of an average of floats in one pass, to the same bits: into[i] = (into[i] + from[i]) /
// contributions. `work` is f32 or f64, contributions >= 1. `also` as in combine.
void combine_and_divide(Work work, std::uint64_t contributions, void* into, const void* from, std::size_t count,
                        void* also = nullptr);

// into[i] = from[i] / contributions, to the bits of finish. Same conditions; `into` == `from` is allowed.
void divide(Work work, std::uint64_t contributions, void* into, const void* from, std::size_t count);

// Widens elements of `dtype` into `work` (exact; a NaN of f16 or bf16 becomes the canonical one). Requires
// work == work_of(dtype, some op).
void widen(DType dtype, Work work, void* into, const void* from, std::size_t count);

// The end of a reduction: into[i] = from[i] for every op but avg, from[i] / contributions for avg, then narrowed to dtype:
// floats round once to nearest even (f16: 40000 stays 40000, subnormals survive); integers divide truncating toward zero.
// `into` == `from` is allowed when the sizes are equal. contributions >= 1. The one rounding of avg is exact for up to
// 2^24 contributions (f64: 2^53); above, the number of contributions is itself rounded to f32 (f64) first.
void finish(DType dtype, ReduceOp op, Work work, std::uint64_t contributions, void* into, const void* from,
            std::size_t count);

// What gradients need beside a reduction, for f16, bf16, f32 and f64 only (else a bug, which aborts).
//
// data[i] *= factor. f64: one rounding. Others: the factor is rounded to f32 first, the product rounds once.
void scale(DType dtype, void* data, std::size_t count, double factor);
// In f64, in an order of its own: square i is added to lane i % 32, in order of i; then lane k + 16 is added to lane k,
// k + 8 to k, … 1 to 0. NaN comes out as the canonical one.
double sum_of_squares(DType dtype, const void* data, std::size_t count);
// The first element that is infinite or NaN; count if there is none.
std::size_t first_not_finite(DType dtype, const void* data, std::size_t count);

// The instruction sets that this machine can run, widest first, and a way for tests to force one ("" = the best again).
std::vector<std::string_view> instruction_sets();
std::string_view instruction_set();                 // the one in use
bool force_instruction_set(std::string_view name);  // not thread-safe; false if unknown

}  // namespace gradsync::kernels
