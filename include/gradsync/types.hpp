// The vocabulary of gradsync: element types, reduction operators, collectives and algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

// Element types of a buffer.
enum class DType : std::uint8_t { f16, bf16, f32, f64, i8, u8, i32, u32, i64, u64, boolean };
inline constexpr std::size_t kDTypeCount = 11;

// Reduction operators.
//   sum, product   floats: f16 and bf16 accumulate in f32 and round once; integers wrap (two's complement).
//   avg            exact sum, then one division by the number of contributions; integers truncate toward zero.
//   min, max       NaN propagates, -0 < +0.
//   bit_*          integers and boolean only.
// boolean: sum, max and bit_or mean "or"; product, min and bit_and mean "and"; avg is not defined.
enum class ReduceOp : std::uint8_t { sum, avg, product, min, max, bit_and, bit_or, bit_xor };
inline constexpr std::size_t kReduceOpCount = 8;

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  barrier,
  send,
  recv
};
inline constexpr std::size_t kCollectiveCount = 11;

// `automatic` asks the library to choose; every other value names one schedule generator.
enum class Algorithm : std::uint8_t {
  automatic,
  flat,
  ring,
  recursive_doubling,
  halving_doubling,
  circulant,
  one_shot,
  two_shot,
  tree,
  double_tree,
  hierarchical,
  direct
};
inline constexpr std::size_t kAlgorithmCount = 12;

enum class TransportKind : std::uint8_t { automatic, loopback, shm, tcp };
inline constexpr std::size_t kTransportKindCount = 4;

std::size_t size_of(DType dtype);  // bytes of one element
bool is_floating(DType dtype);
bool is_integer(DType dtype);             // i8 … u64, not boolean
bool supports(DType dtype, ReduceOp op);  // whether the operator is defined for the element type

std::string_view name_of(DType dtype);  // "f16" … "bool"
std::string_view name_of(ReduceOp op);
std::string_view name_of(Collective collective);
std::string_view name_of(Algorithm algorithm);  // automatic prints as "auto"
std::string_view name_of(TransportKind kind);   // automatic prints as "auto"

// The value of that name, or nothing.
std::optional<DType> dtype_named(std::string_view name);
std::optional<ReduceOp> reduce_op_named(std::string_view name);
std::optional<Collective> collective_named(std::string_view name);
std::optional<Algorithm> algorithm_named(std::string_view name);
std::optional<TransportKind> transport_named(std::string_view name);

// Every known name in the order of the enum, joined by ", ": for error messages and help texts.
std::string known_dtypes();
std::string known_reduce_ops();
std::string known_collectives();
std::string known_algorithms();
std::string known_transports();

}  // namespace gradsync
