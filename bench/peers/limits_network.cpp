// TCP's throughput and latency between two hosts, or over loopback.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <thread>

#include "limits.hpp"
#include "rank.hpp"

namespace bench::limits {
namespace {

constexpr std::uint16_t kPort = 17701;
constexpr std::size_t kWrite = 256u << 10;
constexpr int kTurns = 5000;
constexpr double kRunUp = 0.2, kDrain = 0.3;  // seconds before and after what counts

enum Kind : std::int32_t { one_way, both_ways, ping_pong, quit };
struct Test {
  std::int32_t kind;
  std::int32_t streams;
  double seconds;
};

double now() { return static_cast<double>(now_ns()) * 1e-9; }

int listening_or_dialled(const char* host, bool listening) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) die(host);
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  if (listening && (::bind(fd, at, sizeof address) != 0 || ::listen(fd, 64) != 0)) die("bind");
  if (!listening && ::connect(fd, at, sizeof address) != 0) die("connect");
  return fd;
}

int accepted(int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC), one = 1;
  if (fd < 0) die("accept");
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

void send_all(int fd, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) die("send");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
}

// `poll`: look again at once in place of sleeping until there is something.
void receive_all(int fd, void* data, std::size_t bytes, bool poll = false) {
  for (char* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t got = ::recv(fd, at, bytes, poll ? MSG_DONTWAIT : 0);
    if (got < 0 && poll && errno == EAGAIN) continue;
    if (got <= 0) die("recv");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

// Bytes received in the time that counts.
double flow(int fd, double seconds, bool sending, bool receiving) {
  std::vector<char> out(kWrite, 1), in(kWrite);
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const double begin = now() + kRunUp, end = begin + seconds;
  double got = 0;
  for (double t = now(); t < (receiving ? end + kDrain : end); t = now()) {
    const bool may_send = sending && t < end;
    pollfd ready{fd, static_cast<short>((may_send ? POLLOUT : 0) | (receiving ? POLLIN : 0)), 0};
    if (may_send && receiving) ready.revents = ready.events;  // each in turn, without sleeping
    else if (::poll(&ready, 1, 50) < 0) die("poll");
    if ((ready.revents & POLLIN) != 0) {
      const ssize_t n = ::recv(fd, in.data(), in.size(), 0);
      if (n > 0 && t > begin && t < end) got += static_cast<double>(n);
    }
    if ((ready.revents & POLLOUT) != 0) ::send(fd, out.data(), out.size(), MSG_NOSIGNAL);
  }
  ::fcntl(fd, F_SETFL, flags);
  return got;
}

std::vector<double> turns_us(int fd, bool first) {
  std::vector<double> us;
  std::int32_t word = 0;
  for (int i = 0; i < kTurns; ++i) {
    const std::int64_t start = now_ns();
    if (first) send_all(fd, &word, sizeof word);
    receive_all(fd, &word, sizeof word, true);
    if (!first) send_all(fd, &word, sizeof word);
    us.push_back(static_cast<double>(now_ns() - start) / 2e3);
  }
  return us;
}

// One side's part of a test: bytes a second that it received, or in a ping-pong the microseconds of one way.
double take_part(const Test& test, const std::vector<int>& fds, bool dialled) {
  std::vector<double> result(fds.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < fds.size(); ++i)
    threads.emplace_back([&, i] {
      if (fds.size() == 1) pin(dialled ? 0 : 1);
      if (test.kind == ping_pong) result[i] = median(turns_us(fds[i], dialled));
      else
        result[i] = flow(fds[i], test.seconds, dialled || test.kind == both_ways, !dialled || test.kind == both_ways);
    });
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double r : result) sum += r;
  for (const int fd : fds) ::close(fd);
  return test.kind == ping_pong ? sum : sum / test.seconds;
}

double run(const char* host, const Test& test) {
  const int control = listening_or_dialled(host, false);
  send_all(control, &test, sizeof test);
  if (test.kind == quit) return ::close(control), 0;
  std::vector<int> fds;
  for (int i = 0; i < test.streams; ++i) fds.push_back(listening_or_dialled(host, false));
  const double here = take_part(test, fds, true);
  double there = 0;
  receive_all(control, &there, sizeof there);
  ::close(control);
  return test.kind == ping_pong ? here : here + there;
}

}  // namespace

void serve(const char* host) {
  const int listener = listening_or_dialled(host, true);
  std::printf("ready\n");
  std::fflush(stdout);
  while (true) {
    const int control = accepted(listener);
    Test test{};
    receive_all(control, &test, sizeof test);
    if (test.kind == quit) return;
    std::vector<int> fds;
    for (int i = 0; i < test.streams; ++i) fds.push_back(accepted(listener));
    const double result = take_part(test, fds, false);
    send_all(control, &result, sizeof result);
    ::close(control);
  }
}

void network(const char* host, const std::string& label, bool quick) {
  const double seconds = quick ? 0.5 : 1.0;
  const int rounds = quick ? 1 : 3;
  const auto most = [&](const char* name, Kind kind, int streams) {
    std::vector<double> rates;
    for (int i = 0; i < rounds; ++i) rates.push_back(run(host, {kind, streams, seconds}) / 1e9);
    put(name, label + ", streams: " + std::to_string(streams), median(rates), "GB/s");
  };
  most("tcp_one_way", one_way, 1);
  most("tcp_one_way", one_way, 4);
  most("tcp_both_ways", both_ways, 1);
  put("tcp_latency", label, run(host, {ping_pong, 1, 0}), "us one way");
  run(host, {quit, 0, 0});
}

}  // namespace bench::limits
