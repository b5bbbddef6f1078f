// How the transports' tests connect ranks, in threads or forked processes: each rank has a UNIX and a TCP listener that are
// made before any rank runs, and a fixed greeting.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/wire.hpp"
#include "transport/inbox.hpp"
#include "transport/router.hpp"

namespace gradsync::testing {

inline constexpr std::size_t kGreetingBytes = 16;

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
};

inline Address tcp_address(bool ipv6) {
  Address address;
  if (ipv6) {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    address.bytes = sizeof in6;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.bytes = sizeof in;
  }
  return address;
}

// A socket that listens on a free port or name; `address` becomes where.
inline Descriptor listen_on(Address& address) {
  Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  GRADSYNC_CHECK(socket && ::bind(socket.get(), address.raw(), address.bytes) == 0 && ::listen(socket.get(), 64) == 0);
  address.bytes = sizeof address.storage;
  GRADSYNC_CHECK(::getsockname(socket.get(), address.raw(), &address.bytes) == 0);
  return socket;
}

struct Site {
  Descriptor unix_listener, tcp_listener;
  Address unix_address, tcp_address_;
};

// All ranks' listeners.
struct Sites {
  explicit Sites(std::uint32_t size, bool ipv6 = false) : sites(size) {
    for (Site& site : sites) {
      site.unix_address.storage.ss_family = AF_UNIX;
      site.unix_address.bytes = sizeof(sa_family_t);  // the kernel gives an abstract name
      site.unix_listener = listen_on(site.unix_address);
      site.tcp_address_ = tcp_address(ipv6);
      site.tcp_listener = listen_on(site.tcp_address_);
    }
  }
  std::vector<Site> sites;
  std::function<Address(const Dialer::Call&)> detour;  // where else to connect, with bytes 0 for nowhere else
};

class TestDialer final : public Dialer {
 public:
  TestDialer(std::shared_ptr<Sites> sites, std::uint32_t rank) : sites_(std::move(sites)), rank_(rank) {}

  Result<Line> dial(const Call& call) override {
    const bool shm = call.kind == TransportKind::shm;
    Address to = shm ? sites_->sites[call.to].unix_address : sites_->sites[call.to].tcp_address_;
    if (!shm && sites_->detour)
      if (Address other = sites_->detour(call); other.bytes > 0) to = other;
    Line line;
    line.socket.reset(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!line.socket) return failure(code_of_socket_error(errno), "socket: {}", errno_text(errno));
    if (::connect(line.socket.get(), to.raw(), to.bytes) != 0 && errno != EINPROGRESS)
      return failure(ErrorCode::peer_lost, "connect: {}", errno_text(errno));
    std::array<std::byte, kGreetingBytes> greeting{};
    WireWriter out(greeting);
    out.u32(rank_), out.u32(static_cast<std::uint32_t>(call.channel)), out.u32(call.lane), out.u32(call.lanes);
    line.greeting.assign(reinterpret_cast<const char*>(greeting.data()), greeting.size());
    if (!shm) return line;
    if (!pass(line.socket.get(), line.greeting, call.memory)) return failure(ErrorCode::peer_lost, "passing memory");
    line.greeting.clear();
    return line;
  }
  std::string describe(std::uint32_t rank) const override { return fmt::format("host test-{}", rank); }

 private:
  static bool pass(int socket, std::string& text, int memory) {
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control.data(), message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
    return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  std::shared_ptr<Sites> sites_;
  std::uint32_t rank_;
};

class TestInbox final : public Inbox {
 public:
  TestInbox(std::shared_ptr<Sites> sites, std::uint32_t rank) : sites_(std::move(sites)), site_(sites_->sites[rank]) {
    set_.reset(::epoll_create1(EPOLL_CLOEXEC));
    watch(site_.unix_listener.get());
    watch(site_.tcp_listener.get());
  }
  ~TestInbox() override {
    site_.unix_listener.reset();
    site_.tcp_listener.reset();
  }

  bool take(Arrival& out) override {
    accept(site_.unix_listener.get(), TransportKind::shm);
    accept(site_.tcp_listener.get(), TransportKind::tcp);
    for (auto it = greeting_.begin(); it != greeting_.end(); ++it) {
      const auto result = greet(*it);
      if (result == Greeted::not_yet) continue;
      ::epoll_ctl(set_.get(), EPOLL_CTL_DEL, it->socket.get(), nullptr);
      if (result == Greeted::yes) out = std::move(*it);
      it = greeting_.erase(it);
      if (result == Greeted::yes) return true;
      if (it == greeting_.end()) break;
    }
    return false;
  }
  int descriptor() const override { return set_.get(); }

 private:
  enum class Greeted { yes, not_yet, never };

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    GRADSYNC_CHECK(::epoll_ctl(set_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
  }
  void accept(int listener, TransportKind kind) {
    for (;;) {
      Arrival arrival;
      arrival.kind = kind;
      arrival.socket.reset(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!arrival.socket) return;
      watch(arrival.socket.get());
      greeting_.push_back(std::move(arrival));
    }
  }
  // Greetings of this size come whole or not at all: on one machine they are never split.
  static Greeted greet(Arrival& arrival) {
    std::array<std::byte, kGreetingBytes> bytes{};
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control.data(), message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(arrival.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EAGAIN ? Greeted::not_yet : Greeted::never;
    if (got != static_cast<ssize_t>(bytes.size())) return Greeted::never;
    WireReader in(bytes);
    arrival.from = in.u32(), arrival.channel = static_cast<Channel>(in.u32());
    arrival.lane = in.u32(), arrival.lanes = in.u32();
    if (const cmsghdr* const header = CMSG_FIRSTHDR(&message)) {
      int memory = -1;
      std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
      arrival.memory.reset(memory);
    }
    return Greeted::yes;
  }

  std::shared_ptr<Sites> sites_;
  Site& site_;
  Descriptor set_;
  std::list<Arrival> greeting_;
};

inline std::unique_ptr<Transport> open_on(std::shared_ptr<Sites> sites, const TransportConfig& config) {
  auto transport = open_transport(config, std::make_shared<TestDialer>(sites, config.rank),
                                  std::make_shared<TestInbox>(sites, config.rank));
  GRADSYNC_CHECK(transport.ok());
  return std::move(*transport);
}

}  // namespace gradsync::testing
