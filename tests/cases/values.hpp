// Elements of every type, by number: written and read as bits, so that one test covers all types.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "gradsync/types.hpp"
#include "kernels/reference_for_test.hpp"

namespace gradsync::cases {

using Bytes = std::vector<std::byte>;

inline constexpr DType kAllDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8,     DType::u8,
                                       DType::i32, DType::u32,  DType::i64, DType::u64, DType::boolean};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::avg,     ReduceOp::product, ReduceOp::min,
                                       ReduceOp::max, ReduceOp::bit_and, ReduceOp::bit_or,  ReduceOp::bit_xor};

template <class T>
void store(void* at, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(at) + index * sizeof(T), &value, sizeof(T));
}
template <class T>
T load(const void* at, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(at) + index * sizeof(T), sizeof(T));
  return value;
}

// 16-bit floats are rounded to nearest even, exactly once.
inline std::uint16_t half_bits(DType dtype, double value) {
  return kernels::reference::round_quotient(kernels::reference::format_of(dtype), static_cast<float>(value), 1.0);
}
inline double half_value(DType dtype, std::uint16_t bits) {
  const auto format = kernels::reference::format_of(dtype);
  if (kernels::reference::is_nan(format, bits)) return std::nan("");
  if ((bits & 0x7fff) == format.infinity) return (bits & 0x8000) != 0 ? -INFINITY : INFINITY;
  return kernels::reference::finite_value(format, bits);
}

inline void put(DType dtype, void* at, std::size_t index, double value) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return store(at, index, half_bits(dtype, value));
    case DType::f32: return store(at, index, static_cast<float>(value));
    case DType::f64: return store(at, index, value);
    case DType::i8: return store(at, index, static_cast<std::int8_t>(value));
    case DType::u8: return store(at, index, static_cast<std::uint8_t>(value));
    case DType::i32: return store(at, index, static_cast<std::int32_t>(value));
    case DType::u32: return store(at, index, static_cast<std::uint32_t>(value));
    case DType::i64: return store(at, index, static_cast<std::int64_t>(value));
    case DType::u64: return store(at, index, static_cast<std::uint64_t>(value));
    case DType::boolean: return store(at, index, static_cast<std::uint8_t>(value != 0));
  }
}

inline double get(DType dtype, const void* at, std::size_t index) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16: return half_value(dtype, load<std::uint16_t>(at, index));
    case DType::f32: return load<float>(at, index);
    case DType::f64: return load<double>(at, index);
    case DType::i8: return load<std::int8_t>(at, index);
    case DType::u8: return load<std::uint8_t>(at, index);
    case DType::i32: return load<std::int32_t>(at, index);
    case DType::u32: return load<std::uint32_t>(at, index);
    case DType::i64: return static_cast<double>(load<std::int64_t>(at, index));
    case DType::u64: return static_cast<double>(load<std::uint64_t>(at, index));
    case DType::boolean: return load<std::uint8_t>(at, index);
  }
  return 0;
}

}  // namespace gradsync::cases
