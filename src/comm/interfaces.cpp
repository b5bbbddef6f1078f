#include "comm/interfaces.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/descriptor.hpp"

namespace gradsync {
namespace {

// One entry of a selection.
struct Pattern {
  std::string text;
  bool excluded = false;
  std::optional<Address> address;
  unsigned prefix = 0;  // bits of the address that count

  bool matches(const InterfaceAddress& candidate) const {
    if (!address) return ::fnmatch(text.c_str(), candidate.name.c_str(), 0) == 0;
    if (address->ipv6 != candidate.address.ipv6) return false;
    for (unsigned bit = 0; bit < prefix; ++bit) {
      const unsigned mask = 0x80u >> (bit % 8);
      if (((address->bytes[bit / 8] ^ candidate.address.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

Result<Pattern> parse_pattern(std::string_view entry) {
  Pattern pattern;
  pattern.excluded = entry.starts_with('!');
  if (pattern.excluded) entry.remove_prefix(1);
  pattern.text = entry;
  const auto bad = [&](std::string_view what) {
    return failure(
        ErrorCode::invalid_argument,
        "interface selection: \"{}\" is {}; expected names, names with * and ?, addresses or networks like 10.0.0.0/8",
        entry, what);
  };
  if (entry.empty()) return bad("empty");
  const auto slash = entry.find('/');
  pattern.address = parse_address(entry.substr(0, slash));
  if (slash == std::string_view::npos) {
    if (pattern.address) pattern.prefix = pattern.address->ipv6 ? 128 : 32;
    return pattern;
  }
  const std::string_view digits = entry.substr(slash + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pattern.prefix);
  if (!pattern.address || error != std::errc() || end != digits.data() + digits.size() ||
      pattern.prefix > (pattern.address->ipv6 ? 128u : 32u))
    return bad("not a network");
  return pattern;
}

Result<std::vector<Pattern>> parse_selection(std::string_view selection) {
  std::vector<Pattern> patterns;
  while (!selection.empty()) {
    const auto comma = selection.find(',');
    std::string_view entry = selection.substr(0, comma);
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    auto pattern = parse_pattern(entry);
    if (!pattern) return pattern.status();
    patterns.push_back(std::move(*pattern));
    selection.remove_prefix(comma == std::string_view::npos ? selection.size() : comma + 1);
  }
  return patterns;
}

// Lower is better. Ties keep the system's order.
unsigned order(const InterfaceAddress& candidate, const AddressWish& wish, const std::optional<Address>& routed) {
  const auto is = [&](const std::optional<Address>& wanted) { return wanted && wanted->same_host(candidate.address); };
  const bool family_differs = wish.source && wish.source->ipv6 != candidate.address.ipv6;
  unsigned score = (family_differs ? 64 : 0) + (candidate.carrier ? 0 : 32);
  if (is(wish.source)) return score;
  if (wish.one_host) score += candidate.loopback ? 1 : 8;
  else score += is(routed) ? 1 : candidate.loopback ? 16 : candidate.bridge ? 8 : 4;
  return score + (candidate.address.link_local() ? 2 : 0) + (candidate.address.ipv6 ? 1 : 0);
}

std::string why_not(const InterfaceAddress& candidate, const std::vector<Pattern>& patterns) {
  if (!candidate.up) return "down";
  const bool only_exclusions =
      std::all_of(patterns.begin(), patterns.end(), [](const Pattern& p) { return p.excluded; });
  bool wanted = only_exclusions;
  for (const Pattern& pattern : patterns) {
    if (!pattern.matches(candidate)) continue;
    if (pattern.excluded) return "excluded by !" + pattern.text;
    wanted = true;
  }
  if (!wanted) return "does not match";
  if (candidate.address.link_local() && candidate.address.ipv6 && candidate.address.scope == 0)
    return "link-local without a scope";
  return {};
}

// Asked of the driver; /sys may show another network namespace than ours.
bool is_bridge(const std::string& name) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  request.ifr_data = reinterpret_cast<char*>(&info);
  return ::ioctl(socket.get(), SIOCETHTOOL, &request) == 0 && std::string_view(info.driver) == "bridge";
}

}  // namespace

std::vector<InterfaceAddress> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* at = raw; at; at = at->ifa_next) {
    auto address = from_socket_address(at->ifa_addr);
    if (!address) continue;
    InterfaceAddress entry;
    entry.name = at->ifa_name;
    entry.address = address->with_port(0);
    entry.up = (at->ifa_flags & IFF_UP) != 0;
    entry.carrier = (at->ifa_flags & IFF_RUNNING) != 0;
    entry.loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    entry.bridge = is_bridge(entry.name);
    found.push_back(std::move(entry));
  }
  return found;
}

std::optional<Address> default_source() {
  // Addresses for documentation (RFC 5737, RFC 3849): nobody has them, so the default route is asked for. Nothing is sent.
  for (const char* nobody : {"203.0.113.1", "2001:db8::1"})
    if (auto source = source_for(*parse_address(nobody))) return *source;
  return std::nullopt;
}

Result<Address> choose_address(std::span<const InterfaceAddress> interfaces, const AddressWish& wish) {
  // What the kernel itself answers needs no look at the interfaces.
  if (wish.selection.empty() && wish.source && !wish.source->loopback()) return *wish.source;
  const auto patterns = parse_selection(wish.selection);
  if (!patterns) return patterns.status();
  const std::optional<Address> routed = default_source();
  const InterfaceAddress* best = nullptr;
  std::string tried;
  for (const InterfaceAddress& candidate : interfaces) {
    const std::string why = why_not(candidate, *patterns);
    if (why.empty()) {
      if (!best || order(candidate, wish, routed) < order(*best, wish, routed)) best = &candidate;
      continue;
    }
    tried += fmt::format("{}{} {} ({})", tried.empty() ? "" : ", ", candidate.name, host_text(candidate.address), why);
  }
  if (best) return best->address;
  const std::string wanted =
      wish.selection.empty() ? "no usable network interface" : fmt::format("no interface for \"{}\"", wish.selection);
  return failure(wish.selection.empty() ? ErrorCode::unavailable : ErrorCode::invalid_argument, "{}; tried: {}", wanted,
                 tried.empty() ? "none, this host has no addresses" : tried);
}

}  // namespace gradsync
