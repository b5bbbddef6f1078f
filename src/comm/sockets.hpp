// The few socket calls that comm/ needs, non-blocking and close-on-exec throughout; a forked child does not keep them open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/descriptor.hpp"
#include "base/status.hpp"
#include "comm/address.hpp"

namespace gradsync {

// Listens on the address (port 0: the kernel chooses). `dual` opens an IPv6 wildcard to IPv4 as well.
Result<Descriptor> listen_tcp(const Address& address, bool dual = false);
// Listens on a name in the abstract namespace (nothing in the file system; gone with the socket). An empty name lets the
// kernel choose one. The name is one of this network namespace.
Result<Descriptor> listen_abstract(std::string_view name);

// The connection may still be under way (tcp) when these return. Failures carry the system's reason:
// peer_lost if it is the other end's, out_of_memory or unavailable if it is ours or the network's.
Result<Descriptor> connect_tcp(const Address& address);
Result<Descriptor> connect_abstract(std::string_view name, Deadline deadline);
// What became of connect_tcp's connection once the socket is writable: ok or the reason.
Status connect_outcome(int socket);

// The next connection of a listener, or nothing and errno.
Descriptor accept_from(const Descriptor& listener);

Address local_address(int socket);
std::string local_abstract_name(int socket);

// True if the process at the other end of a UNIX socket runs under our user.
bool peer_is_our_user(int socket);

// Waits until one of `events` (POLLIN …) or an error shows; false once the deadline has passed.
bool poll_one(int descriptor, short events, Deadline deadline);

// Sends all bytes, the descriptor (if not -1) with the first of them. UNIX sockets, or any socket without a descriptor.
Status send_all(int socket, std::string_view bytes, Deadline deadline, int descriptor = -1);
// Receives exactly `into.size()` bytes; peer_lost if the other end closes before.
Status receive_all(int socket, std::span<std::byte> into, Deadline deadline);
// Receives what is there, at most `into.size()` bytes, and at most one passed descriptor (more are closed). Returns what
// recvmsg returns.
long receive_some(int socket, std::span<std::byte> into, Descriptor& passed);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::span<std::byte> as_writable_bytes(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

// A number that nobody can guess, from the kernel.
std::uint64_t random_number();

}  // namespace gradsync
