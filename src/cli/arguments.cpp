#include "cli/arguments.hpp"

#include <algorithm>
#include <charconv>

#include "base/limits.hpp"

namespace gradsync::cli {
namespace {

constexpr std::size_t worlds_max = 1u << 16;

template <class Value>
Result<Value> known_or_error(std::optional<Value> found, std::string_view kind, std::string_view name,
                             const std::string& known) {
  if (found) return *found;
  return failure(ErrorCode::invalid_argument, "unknown {} '{}'; known: {}", kind, name, known);
}

// The number that `text` begins with; `rest` is what follows. False if there is none or it is too big.
bool read_number(std::string_view text, std::uint64_t& number, std::string_view& rest) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  rest = text.substr(static_cast<std::size_t>(end - text.data()));
  return error == std::errc();
}

bool read_world(std::string_view text, std::uint64_t& number) {
  std::string_view rest;
  return read_number(text, number, rest) && rest.empty() && number >= 1 && number <= limits::ranks_max;
}

int shift_of(std::string_view suffix) {
  std::string lower(suffix);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (lower.empty() || lower == "b") return 0;
  static constexpr std::string_view letters = "kmg";
  const std::size_t at = letters.find(lower[0]);
  const std::string_view rest = std::string_view(lower).substr(1);
  if (at == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) return -1;
  return 10 * (static_cast<int>(at) + 1);
}

// The list without one of its entries.
std::string without(const std::string& names, std::string_view left_out) {
  std::string kept;
  for (std::string_view name : split(names, ',')) {
    if (name.starts_with(' ')) name.remove_prefix(1);
    if (name != left_out) kept += fmt::format("{}{}", kept.empty() ? "" : ", ", name);
  }
  return kept;
}

}  // namespace

std::string transports_of_processes() { return without(known_transports(), name_of(TransportKind::loopback)); }
std::string real_algorithms() { return without(known_algorithms(), name_of(Algorithm::automatic)); }

Result<DType> read_dtype(std::string_view name) {
  return known_or_error(dtype_named(name), "dtype", name, known_dtypes());
}
Result<ReduceOp> read_reduce_op(std::string_view name) {
  return known_or_error(reduce_op_named(name), "operator", name, known_reduce_ops());
}
Result<Collective> read_collective(std::string_view name) {
  return known_or_error(collective_named(name), "collective", name, known_collectives());
}
Result<Algorithm> read_algorithm(std::string_view name) {
  return known_or_error(algorithm_named(name), "algorithm", name, known_algorithms());
}
Result<TransportKind> read_transport(std::string_view name) {
  return known_or_error(transport_named(name), "transport", name, known_transports());
}

Result<std::chrono::nanoseconds> read_timeout(double seconds) {
  constexpr double kMost = 1e8;            // an int64 of nanoseconds holds it
  if (!(seconds > 0 && seconds <= kMost))  // nor is it a NaN
    return failure(ErrorCode::invalid_argument, "--timeout is {:g}, expected seconds above 0 and at most {:g}", seconds,
                   kMost);
  return std::max(std::chrono::nanoseconds(1), std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

Result<std::uint64_t> read_bytes(std::string_view text) {
  std::uint64_t number = 0;
  std::string_view suffix;
  const bool is_number = read_number(text, number, suffix);
  const int shift = is_number ? shift_of(suffix) : -1;
  if (shift < 0)
    return failure(ErrorCode::invalid_argument, "'{}' is no size: expected a number with K, M or G, as 64K", text);
  if (number > limits::message_bytes_max >> shift)
    return failure(ErrorCode::invalid_argument, "size '{}' is above the limit of {} bytes", text,
                   limits::message_bytes_max);
  return number << shift;
}

Result<std::vector<std::uint64_t>> read_bytes_list(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  for (const std::string_view part : split(text, ',')) {
    auto bytes = read_bytes(part);
    if (!bytes) return bytes.status();
    sizes.push_back(*bytes);
  }
  return sizes;
}

Result<std::vector<std::uint32_t>> read_worlds(std::string_view text) {
  std::vector<std::uint32_t> worlds;
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> ends = split(part, '-');
    std::uint64_t first = 0, last = 0;
    if (ends.size() > 2 || !read_world(ends.front(), first) || !read_world(ends.back(), last) || first > last)
      return failure(ErrorCode::invalid_argument,
                     "'{}' is no list of world sizes from 1 to {}: expected as 1-64 or 2,4,8", part, limits::ranks_max);
    if (worlds.size() + (last - first) >= worlds_max)
      return failure(ErrorCode::invalid_argument, "'{}' is more than {} world sizes", text, worlds_max);
    for (std::uint64_t n = first; n <= last; ++n) worlds.push_back(static_cast<std::uint32_t>(n));
  }
  return worlds;
}

Result<std::vector<std::uint32_t>> read_hosts(std::string_view text) {
  std::vector<std::uint32_t> hosts;
  std::uint32_t host = 0;
  for (const std::string_view part : split(text, ',')) {
    std::uint64_t ranks = 0;
    if (!read_world(part, ranks) || hosts.size() + ranks > limits::ranks_max)
      return failure(ErrorCode::invalid_argument, "'{}' is no list of ranks on each host: expected as 4,4", text);
    hosts.insert(hosts.end(), static_cast<std::size_t>(ranks), host++);
  }
  return hosts;
}

Result<std::vector<std::uint32_t>> read_shards(std::string_view text) {
  std::vector<std::uint32_t> shards;
  for (const std::string_view part : split(text, ',')) {
    std::uint32_t weight = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), weight);
    if (error != std::errc() || end != part.data() + part.size() || shards.size() >= limits::ranks_max)
      return failure(ErrorCode::invalid_argument, "'{}' is no list of weights: expected as 0,1,1,1", text);
    shards.push_back(weight);
  }
  return shards;
}

}  // namespace gradsync::cli
