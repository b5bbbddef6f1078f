// Reading the values that people type: names, sizes, lists and ranges. Every error says what was expected or is known.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "gradsync/types.hpp"

namespace gradsync::cli {

// "unknown dtype 'f23'; known: f16, bf16, …"
Result<DType> read_dtype(std::string_view name);
Result<ReduceOp> read_reduce_op(std::string_view name);
Result<Collective> read_collective(std::string_view name);
Result<Algorithm> read_algorithm(std::string_view name);  // also "auto"
Result<TransportKind> read_transport(std::string_view name);

// "4", "64K", "1M", "2G": binary multiples. At most limits::message_bytes_max.
Result<std::uint64_t> read_bytes(std::string_view text);
Result<std::vector<std::uint64_t>> read_bytes_list(std::string_view text);  // "4,1K,1M"

// "1-4,8" is 1 2 3 4 8: world sizes, each in [1, limits::ranks_max], at most 2^16 of them.
Result<std::vector<std::uint32_t>> read_worlds(std::string_view text);
// "4,4": ranks of each host. The host number of each rank.
Result<std::vector<std::uint32_t>> read_hosts(std::string_view text);

// "0,1,1,1": weights of the parts of an all-reduce.
Result<std::vector<std::uint32_t>> read_shards(std::string_view text);

// The value of --timeout: seconds, above 0 and at most 1e8 (three years).
Result<std::chrono::nanoseconds> read_timeout(double seconds);

// What commands offer of the known names: processes do not use loopback; "auto" is not an algorithm that can be shown.
std::string transports_of_processes();
std::string real_algorithms();

std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace gradsync::cli
