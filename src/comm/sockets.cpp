#include "comm/sockets.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/own_sockets.hpp"

namespace gradsync {
namespace {

constexpr int kBacklog = 1024;  // the kernel lowers it to net.core.somaxconn
constexpr auto kRetryPause = std::chrono::milliseconds(1);

Result<SocketAddress> abstract_address(std::string_view name) {
  SocketAddress out;
  auto* un = reinterpret_cast<sockaddr_un*>(&out.storage);
  if (name.size() + 1 > sizeof un->sun_path)
    return failure(ErrorCode::invalid_argument, "abstract socket name is {} bytes, at most {} are possible",
                   name.size(), sizeof un->sun_path - 1);
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path + 1, name.data(), name.size());
  // An address of the family alone asks the kernel for a free name.
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + (name.empty() ? 0 : 1 + name.size()));
  return out;
}

Descriptor stream_socket(int family) {
  return own_socket([&] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

void set(int socket, int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); }

Status no_socket(std::string_view what, int error) {
  const ErrorCode code = code_of_socket_error(error);
  return failure(code == ErrorCode::out_of_memory ? code : ErrorCode::unavailable, "cannot open {}: {}", what,
                 errno_text(error));
}

}  // namespace

Result<Descriptor> listen_tcp(const Address& address, bool dual) {
  Descriptor socket = stream_socket(address.ipv6 ? AF_INET6 : AF_INET);
  if (!socket) return failure(ErrorCode::unavailable, "cannot open a socket: {}", errno_text(errno));
  if (address.ipv6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, dual ? 0 : 1);
  // A fixed port whose last owner's connections still linger is ours to take; a live listener's is not.
  if (address.port != 0) set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  const SocketAddress at = to_socket_address(address);
  if (::bind(socket.get(), at.get(), at.length) != 0)
    return failure(ErrorCode::unavailable, "cannot bind {}: {}", text(address), errno_text(errno));
  if (::listen(socket.get(), kBacklog) != 0)
    return failure(ErrorCode::unavailable, "cannot listen on {}: {}", text(address), errno_text(errno));
  return socket;
}

Result<Descriptor> listen_abstract(std::string_view name) {
  const auto at = abstract_address(name);
  if (!at) return at.status();
  Descriptor socket = stream_socket(AF_UNIX);
  if (!socket) return failure(ErrorCode::unavailable, "cannot open a UNIX socket: {}", errno_text(errno));
  if (::bind(socket.get(), at->get(), at->length) != 0 || ::listen(socket.get(), kBacklog) != 0)
    return failure(ErrorCode::unavailable, "cannot listen on abstract UNIX socket {}: {}", name, errno_text(errno));
  return socket;
}

Result<Descriptor> connect_tcp(const Address& address) {
  Descriptor socket = stream_socket(address.ipv6 ? AF_INET6 : AF_INET);
  if (!socket) return no_socket("a socket", errno);
  set(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const SocketAddress to = to_socket_address(address);
  if (::connect(socket.get(), to.get(), to.length) != 0 && errno != EINPROGRESS && errno != EINTR) {
    const int error = errno;
    // EAGAIN: all local ports are taken.
    return failure(error == EAGAIN ? ErrorCode::unavailable : code_of_socket_error(error), "cannot connect to {}: {}",
                   text(address), errno_text(error));
  }
  return socket;
}

Result<Descriptor> connect_abstract(std::string_view name, Deadline deadline) {
  const auto to = abstract_address(name);
  if (!to) return to.status();
  Descriptor socket = stream_socket(AF_UNIX);
  if (!socket) return no_socket("a UNIX socket", errno);
  while (::connect(socket.get(), to->get(), to->length) != 0) {
    const int error = errno;
    // EAGAIN: the listener's backlog is full, and no event tells when it is not.
    if ((error != EAGAIN && error != EINTR) || deadline.passed())
      return failure(code_of_socket_error(error), "cannot connect to abstract UNIX socket {}: {}", name,
                     errno_text(error));
    std::this_thread::sleep_for(kRetryPause);
  }
  return socket;
}

Descriptor accept_from(const Descriptor& listener) {
  return own_socket([&] { return ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

Status connect_outcome(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? Status{} : failure(ErrorCode::unavailable, "{}", errno_text(error));
}

Address local_address(int socket) {
  SocketAddress at;
  at.length = sizeof at.storage;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&at.storage), &at.length);
  return from_socket_address(at.get()).value_or(Address{});
}

std::string local_abstract_name(int socket) {
  SocketAddress at;
  at.length = sizeof at.storage;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&at.storage), &at.length);
  const std::size_t prefix = offsetof(sockaddr_un, sun_path) + 1;
  const auto* un = reinterpret_cast<const sockaddr_un*>(&at.storage);
  return at.length > prefix ? std::string(un->sun_path + 1, at.length - prefix) : std::string();
}

bool peer_is_our_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

bool poll_one(int descriptor, short events, Deadline deadline) {
  for (;;) {
    pollfd waited{descriptor, events, 0};
    const int ready = ::poll(&waited, 1, deadline.poll_milliseconds());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

Status send_all(int socket, std::string_view bytes, Deadline deadline, int descriptor) {
  while (!bytes.empty()) {
    iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
    }
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      descriptor = -1;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!poll_one(socket, POLLOUT, deadline)) return failure(ErrorCode::timeout, "send: the deadline passed");
    } else if (sent < 0 && errno != EINTR) {
      const int error = errno;
      return failure(code_of_socket_error(error), "send: {}", errno_text(error));
    }
  }
  return {};
}

Status receive_all(int socket, std::span<std::byte> into, Deadline deadline) {
  while (!into.empty()) {
    const ssize_t got = ::recv(socket, into.data(), into.size(), 0);
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return failure(ErrorCode::peer_lost, "the other end closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!poll_one(socket, POLLIN, deadline)) return failure(ErrorCode::timeout, "receive: the deadline passed");
    } else if (errno != EINTR) {
      return failure(ErrorCode::peer_lost, "receive: {}", errno_text(errno));
    }
  }
  return {};
}

long receive_some(int socket, std::span<std::byte> into, Descriptor& passed) {
  iovec piece{into.data(), into.size()};
  constexpr std::size_t kDescriptorsMax = 4;  // a sender may pass more; they are closed, here or by the kernel
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return got;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
      Descriptor owned(fd);
      if (!passed) passed = std::move(owned);
    }
  }
  return got;
}

std::uint64_t random_number() {
  std::uint64_t value = 0;
  GRADSYNC_CHECK(::getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

}  // namespace gradsync
