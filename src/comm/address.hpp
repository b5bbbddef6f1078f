// IP addresses as values: parsing, text, resolution, and the question which of our addresses reaches another.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace gradsync {

// An IPv4 or IPv6 address with a port. IPv4 uses the first four bytes. `scope` is the interface number of an IPv6
// link-local address and means something on this host only.
struct Address {
  bool ipv6 = false;
  std::array<std::uint8_t, 16> bytes{};
  std::uint16_t port = 0;
  std::uint32_t scope = 0;

  bool loopback() const;
  bool link_local() const;
  bool unspecified() const;
  // Equal but for the port and the scope.
  bool same_host(const Address& other) const { return ipv6 == other.ipv6 && bytes == other.bytes; }
  Address with_port(std::uint16_t other_port) const {
    Address copy = *this;
    copy.port = other_port;
    return copy;
  }
  friend bool operator==(const Address&, const Address&) = default;
};

std::string host_text(const Address& address);  // "192.0.2.1", "fe80::1%eth0"
std::string text(const Address& address);       // "192.0.2.1:80", "[fe80::1%eth0]:80"

// A literal, without brackets or port: "192.0.2.1", "2001:db8::1", "fe80::1%eth0".
std::optional<Address> parse_address(std::string_view literal);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};
SocketAddress to_socket_address(const Address& address);
std::optional<Address> from_socket_address(const sockaddr* address);

// Every address of `host` (a name or a literal), IPv4 first, each with `port`. The name service is asked in the
// background: a resolver that never answers ends in `timeout`.
Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port, Deadline deadline);

// Which of this host's addresses the kernel would send from to reach `target`. Sends nothing. Port 0.
Result<Address> source_for(const Address& target);

}  // namespace gradsync
