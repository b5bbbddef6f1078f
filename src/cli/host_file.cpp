#include "cli/host_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>

#include "base/limits.hpp"
#include "comm/address.hpp"

namespace gradsync::cli {
namespace {

constexpr std::size_t host_file_bytes_max = 1u << 20;
constexpr auto resolve_timeout = std::chrono::seconds(10);
constexpr std::string_view blanks = " \t\r";

// One line of the file, read from left to right.
class LineReader {
 public:
  LineReader(std::string_view text, std::string_view file, std::size_t number)
      : text_(text.substr(0, text.find('#'))),
        file_(file),
        number_(number) {}

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(blanks, at_), text_.size()); }
  bool at_end() const { return at_ == text_.size(); }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string_view take_until(std::string_view ends) {
    const std::size_t first = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(first, at_ - first);
  }
  std::string_view word_here() const { return text_.substr(at_, text_.find_first_of(blanks, at_) - at_); }
  Status expected(std::string_view what) const {
    return failure(ErrorCode::invalid_argument, "{}:{}:{}: expected {}, found {}", file_, number_, at_ + 1, what,
                   at_end() ? "the end of the line" : fmt::format("'{}'", word_here()));
  }
  std::size_t number() const { return number_; }

 private:
  std::string_view text_, file_;
  std::size_t number_;
  std::size_t at_ = 0;
};

Status read_slots(LineReader& line, HostLine& out) {
  const LineReader before = line;
  const std::string_view digits = line.take_until(blanks);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out.slots);
  if (error != std::errc() || end != digits.data() + digits.size() || out.slots < 1 ||
      out.slots > limits::launch_ranks_max)
    return before.expected(fmt::format("a number of slots from 1 to {}", limits::launch_ranks_max));
  return {};
}

// HOST, HOST:SLOTS, [ADDRESS] or [ADDRESS]:SLOTS. Several colons without brackets are an IPv6 address.
Status read_host(LineReader& line, HostLine& out) {
  if (line.take("[")) {
    const LineReader before = line;
    out.host = line.take_until("] \t\r");
    if (out.host.empty()) return before.expected("an address");
    if (!line.take("]")) return line.expected("']'");
    return line.take(":") ? read_slots(line, out) : Status{};
  }
  const std::string_view word = line.word_here();
  if (word.find(':') != word.rfind(':')) return out.host = line.take_until(blanks), Status{};
  out.host = line.take_until(": \t\r");
  if (out.host.empty()) return line.expected("a host");
  return line.take(":") ? read_slots(line, out) : Status{};
}

Status read_line(LineReader line, std::vector<HostLine>& hosts) {
  line.skip_blanks();
  if (line.at_end()) return {};
  HostLine host;
  host.line = line.number();
  Status status = read_host(line, host);
  if (!status.ok()) return status;
  line.skip_blanks();
  if (!line.at_end()) {
    if (!line.take("slots=")) return line.expected("'slots=NUMBER'");
    status = read_slots(line, host);
    if (!status.ok()) return status;
    line.skip_blanks();
    if (!line.at_end()) return line.expected("the end of the line");
  }
  hosts.push_back(std::move(host));
  return {};
}

std::string name_here() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool is_own(const Address& address) {
  if (address.loopback()) return true;
  const auto source = source_for(address);
  return source.ok() && source->same_host(address);
}

// Whether the host is this one; appends to `tried` what the name was found to mean.
bool is_here(const std::string& host, const std::string& name, std::string& tried) {
  if (host == name || host == name.substr(0, name.find('.'))) return true;
  const auto addresses = resolve(host, 0, Deadline::after(resolve_timeout));
  std::string found;
  if (addresses.ok())
    for (const Address& address : *addresses) {
      if (is_own(address)) return true;
      found += fmt::format("{}{}", found.empty() ? "" : ", ", host_text(address));
    }
  tried += fmt::format("{}{} is {}", tried.empty() ? "" : "; ", host, addresses.ok() ? found : "unknown");
  return false;
}

}  // namespace

Result<std::vector<HostLine>> parse_host_file(std::string_view text, std::string_view name) {
  std::vector<HostLine> hosts;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    Status status = read_line(LineReader(text.substr(at, end - at), name, ++number), hosts);
    if (!status.ok()) return status;
    at = end + 1;
  }
  if (hosts.empty()) return failure(ErrorCode::invalid_argument, "{}: names no host", name);
  return hosts;
}

Result<std::vector<HostLine>> read_host_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return failure(ErrorCode::unavailable, "cannot open host file '{}': {}", path, errno_text(errno));
  std::string text(host_file_bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return failure(ErrorCode::unavailable, "cannot read host file '{}': {}", path, errno_text(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > host_file_bytes_max)
    return failure(ErrorCode::invalid_argument, "host file '{}' has more than {} bytes", path, host_file_bytes_max);
  return parse_host_file(text, path);
}

Result<std::size_t> find_this_host(const std::vector<HostLine>& hosts) {
  const std::string name = name_here();
  std::string tried;
  std::vector<std::size_t> matches;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (is_here(hosts[i].host, name, tried)) matches.push_back(i);
  if (matches.size() == 1) return matches[0];
  if (matches.empty())
    return failure(ErrorCode::invalid_argument,
                   "no line of the host file is this host ('{}'): {}; say which with --host-index", name, tried);
  return failure(ErrorCode::invalid_argument,
                 "lines {} ('{}') and {} ('{}') of the host file are both this host; say which with --host-index",
                 hosts[matches[0]].line, hosts[matches[0]].host, hosts[matches[1]].line, hosts[matches[1]].host);
}

std::uint64_t slots_in_all(const std::vector<HostLine>& hosts) {
  std::uint64_t sum = 0;
  for (const HostLine& host : hosts) sum += host.slots;
  return sum;
}

}  // namespace gradsync::cli
