// What kernels.cpp calls in the files that are compiled once for each instruction set. Pointers may have any alignment.
#pragma once

#include <cstddef>

#include "kernels/kernels.hpp"

namespace gradsync::kernels {

// into[i] = from[0][i] op … op from[ways - 1][i], i < count, and also[i] unless null. Both may be any from[k].
struct Streams {
  void* into;
  const void* const* from;
  std::size_t ways;
  std::size_t count;
  void* also = nullptr;
};

void combine_floats(Work work, ReduceOp op, const Streams& streams);    // f32, f64
void combine_halves(Work work, ReduceOp op, const Streams& streams);    // f16, bf16: min, max
void combine_integers(Work work, ReduceOp op, const Streams& streams);  // i8 … u64, boolean
void combine_wide(Work work, const Streams& streams);                   // i128, u128: sum

// Elements of one array into another.
struct Conversion {
  void* into;
  const void* from;
  std::size_t count;
};

void divide_floats(Work work, std::uint64_t contributions, const Conversion& arrays);  // f32, f64
// Their sum / contributions; f32, f64
void add_and_divide_floats(Work work, std::uint64_t contributions, const Streams& streams);
void widen_halves(DType dtype, const Conversion& arrays);  // f16, bf16 to f32
// f32 / contributions, rounded once to f16 or bf16.
void narrow_halves(DType dtype, std::uint64_t contributions, const Conversion& arrays);

void widen_integers(DType dtype, const Conversion& arrays);                                // to i64, i128 or u128
void divide_integers(DType dtype, std::uint64_t contributions, const Conversion& arrays);  // from those, truncating

// The instruction sets of this build.
std::vector<std::string_view> compiled_instruction_sets();
std::string_view chosen_instruction_set();
bool choose_instruction_set(std::string_view name);

}  // namespace gradsync::kernels
