#include "comm/address.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/descriptor.hpp"

namespace gradsync {
namespace {

// One request to the resolver. It must outlive a request that could not be cancelled.
struct Lookup {
  std::string host;
  addrinfo hints{};
  gaicb request{};
  ~Lookup() {
    if (request.ar_result) ::freeaddrinfo(request.ar_result);
  }
};

Result<std::vector<Address>> addresses_of(const addrinfo* list, const std::string& host, std::uint16_t port) {
  std::vector<Address> found;
  for (const addrinfo* at = list; at; at = at->ai_next) {
    const auto address = from_socket_address(at->ai_addr);
    if (!address) continue;
    const Address with_port = address->with_port(port);
    if (std::find(found.begin(), found.end(), with_port) == found.end()) found.push_back(with_port);
  }
  if (found.empty()) return failure(ErrorCode::unavailable, "host name {} has no IPv4 or IPv6 address", host);
  std::stable_partition(found.begin(), found.end(), [](const Address& a) { return !a.ipv6; });
  return found;
}

timespec left_until(Deadline deadline) {
  const auto left = std::max<Nanoseconds>(Nanoseconds(0), deadline.when() - std::chrono::steady_clock::now());
  return {static_cast<time_t>(left.count() / 1'000'000'000), static_cast<long>(left.count() % 1'000'000'000)};
}

}  // namespace

bool Address::loopback() const {
  if (!ipv6) return bytes[0] == 127;
  if (std::all_of(bytes.begin(), bytes.begin() + 10, [](auto b) { return b == 0; }) && bytes[10] == 0xff &&
      bytes[11] == 0xff)
    return bytes[12] == 127;  // IPv4 mapped
  return std::all_of(bytes.begin(), bytes.end() - 1, [](auto b) { return b == 0; }) && bytes[15] == 1;
}

bool Address::link_local() const {
  return ipv6 ? bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80 : bytes[0] == 169 && bytes[1] == 254;
}

bool Address::unspecified() const {
  return std::all_of(bytes.begin(), bytes.end(), [](auto b) { return b == 0; });
}

std::string host_text(const Address& address) {
  char buffer[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(address.ipv6 ? AF_INET6 : AF_INET, address.bytes.data(), buffer, sizeof buffer);
  std::string out = buffer;
  if (address.scope == 0) return out;
  char name[IF_NAMESIZE] = {};
  return out + "%" + (::if_indextoname(address.scope, name) ? std::string(name) : std::to_string(address.scope));
}

std::string text(const Address& address) {
  return address.ipv6 ? fmt::format("[{}]:{}", host_text(address), address.port)
                      : fmt::format("{}:{}", host_text(address), address.port);
}

std::optional<Address> parse_address(std::string_view literal) {
  Address address;
  std::string host(literal);
  if (const auto percent = host.find('%'); percent != std::string::npos) {
    address.scope = ::if_nametoindex(host.c_str() + percent + 1);
    if (address.scope == 0) return std::nullopt;
    host.resize(percent);
  }
  if (::inet_pton(AF_INET, host.c_str(), address.bytes.data()) == 1)
    return address.scope == 0 ? std::optional(address) : std::nullopt;
  address.ipv6 = true;
  if (::inet_pton(AF_INET6, host.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

SocketAddress to_socket_address(const Address& address) {
  SocketAddress out;
  if (address.ipv6) {
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(address.port);
    in6->sin6_scope_id = address.scope;
    std::memcpy(&in6->sin6_addr, address.bytes.data(), 16);
    out.length = sizeof *in6;
  } else {
    auto* in4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    in4->sin_family = AF_INET;
    in4->sin_port = htons(address.port);
    std::memcpy(&in4->sin_addr, address.bytes.data(), 4);
    out.length = sizeof *in4;
  }
  return out;
}

std::optional<Address> from_socket_address(const sockaddr* raw) {
  if (!raw) return std::nullopt;
  Address address;
  if (raw->sa_family == AF_INET) {
    const auto* in4 = reinterpret_cast<const sockaddr_in*>(raw);
    std::memcpy(address.bytes.data(), &in4->sin_addr, 4);
    address.port = ntohs(in4->sin_port);
    return address;
  }
  if (raw->sa_family != AF_INET6) return std::nullopt;
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(raw);
  address.ipv6 = true;
  std::memcpy(address.bytes.data(), &in6->sin6_addr, 16);
  address.port = ntohs(in6->sin6_port);
  address.scope = in6->sin6_scope_id;
  return address;
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port, Deadline deadline) {
  if (const auto literal = parse_address(host)) return std::vector<Address>{literal->with_port(port)};
  auto lookup = std::make_unique<Lookup>();
  lookup->host = host;
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->request.ar_name = lookup->host.c_str();
  lookup->request.ar_request = &lookup->hints;
  gaicb* list[] = {&lookup->request};
  int error = ::getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr);
  while (error == 0 && (error = ::gai_error(list[0])) == EAI_INPROGRESS && !deadline.passed()) {
    const timespec left = left_until(deadline);
    ::gai_suspend(list, 1, &left);
    error = 0;
  }
  if (::gai_error(list[0]) == EAI_INPROGRESS) {
    if (::gai_cancel(list[0]) == EAI_NOTCANCELED) lookup.release();  // the resolver still writes into it
    return failure(ErrorCode::timeout, "the name service did not answer for host name {}", host);
  }
  if (error != 0)
    return failure(ErrorCode::unavailable, "host name {} cannot be resolved: {}", host, ::gai_strerror(error));
  return addresses_of(lookup->request.ar_result, host, port);
}

Result<Address> source_for(const Address& target) {
  const Descriptor socket(::socket(target.ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return failure(ErrorCode::unavailable, "{}", errno_text(errno));
  const SocketAddress to = to_socket_address(target.with_port(target.port ? target.port : 9));
  if (::connect(socket.get(), to.get(), to.length) != 0)
    return failure(ErrorCode::unavailable, "no address of this host reaches {}: {}", host_text(target),
                   errno_text(errno));
  SocketAddress from;
  from.length = sizeof from.storage;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length) != 0)
    return failure(ErrorCode::unavailable, "getsockname: {}", errno_text(errno));
  const auto address = from_socket_address(from.get());
  if (!address || address->unspecified())
    return failure(ErrorCode::unavailable, "no address of this host reaches {}", host_text(target));
  return address->with_port(0);
}

}  // namespace gradsync
