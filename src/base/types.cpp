#include "gradsync/types.hpp"

#include <array>

namespace gradsync {
namespace {

template <std::size_t N>
using Names = std::array<std::string_view, N>;

constexpr Names<kDTypeCount> kDTypes = {"f16", "bf16", "f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "bool"};
constexpr Names<kReduceOpCount> kOps = {"sum", "avg", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};
constexpr Names<kCollectiveCount> kCollectives = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                  "reduce",     "gather",         "scatter",    "all_to_all",
                                                  "barrier",    "send",           "recv"};
constexpr Names<kAlgorithmCount> kAlgorithms = {
    "auto",     "flat",     "ring", "recursive_doubling", "halving_doubling", "circulant",
    "one_shot", "two_shot", "tree", "double_tree",        "hierarchical",     "direct"};
constexpr Names<kTransportKindCount> kTransports = {"auto", "loopback", "shm", "tcp"};

template <class Enum, std::size_t N>
std::string_view name_in(const Names<N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

template <class Enum, std::size_t N>
std::optional<Enum> find_in(const Names<N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

template <std::size_t N>
std::string join(const Names<N>& names) {
  std::string text;
  for (std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

}  // namespace

std::size_t size_of(DType dtype) {
  static constexpr std::array<std::size_t, kDTypeCount> sizes = {2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 1};
  return sizes[static_cast<std::size_t>(dtype)];
}

bool is_floating(DType dtype) { return dtype <= DType::f64; }
bool is_integer(DType dtype) { return dtype >= DType::i8 && dtype <= DType::u64; }

bool supports(DType dtype, ReduceOp op) {
  if (op >= ReduceOp::bit_and) return !is_floating(dtype);
  return !(dtype == DType::boolean && op == ReduceOp::avg);
}

std::string_view name_of(DType dtype) { return name_in(kDTypes, dtype); }
std::string_view name_of(ReduceOp op) { return name_in(kOps, op); }
std::string_view name_of(Collective collective) { return name_in(kCollectives, collective); }
std::string_view name_of(Algorithm algorithm) { return name_in(kAlgorithms, algorithm); }
std::string_view name_of(TransportKind kind) { return name_in(kTransports, kind); }

std::optional<DType> dtype_named(std::string_view name) { return find_in<DType>(kDTypes, name); }
std::optional<ReduceOp> reduce_op_named(std::string_view name) { return find_in<ReduceOp>(kOps, name); }
std::optional<Collective> collective_named(std::string_view name) { return find_in<Collective>(kCollectives, name); }
std::optional<Algorithm> algorithm_named(std::string_view name) { return find_in<Algorithm>(kAlgorithms, name); }
std::optional<TransportKind> transport_named(std::string_view name) {
  return find_in<TransportKind>(kTransports, name);
}

std::string known_dtypes() { return join(kDTypes); }
std::string known_reduce_ops() { return join(kOps); }
std::string known_collectives() { return join(kCollectives); }
std::string known_algorithms() { return join(kAlgorithms); }
std::string known_transports() { return join(kTransports); }

}  // namespace gradsync
