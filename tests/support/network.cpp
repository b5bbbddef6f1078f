#include "support/network.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>
#include <stdexcept>
#include <thread>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "support/process.hpp"

namespace gradsync::test {
namespace {

constexpr auto kCommandTimeout = std::chrono::seconds(20);

// Calls it in a thread of its own, whose namespaces may be changed without harm; what it throws is thrown here.
void in_thread(const std::function<void()>& body) {
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      body();
    } catch (...) { thrown = std::current_exception(); }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
}

Descriptor new_namespace() {
  Descriptor made;
  in_thread([&] {
    if (::unshare(CLONE_NEWNET) != 0)
      throw std::runtime_error(fmt::format(
          "this test needs a network namespace, and none can be made: {} (root is needed)", errno_text(errno)));
    made.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!made) throw std::runtime_error("cannot open the new network namespace: " + errno_text(errno));
  });
  return made;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t got; (got = ::read(fd, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  return text;
}

// In the given namespace; returns when it has ended.
void run_command(int network, const std::vector<std::string>& arguments) {
  Process process = start_process({arguments, current_environment(), network});
  const Deadline deadline = Deadline::after(kCommandTimeout);
  pollfd ended{process.ended.get(), POLLIN, 0};
  while (::poll(&ended, 1, deadline.poll_milliseconds()) <= 0 && !deadline.passed()) {}
  if (ended.revents == 0) ::kill(-process.pid, SIGKILL);
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::string line;
  for (const std::string& argument : arguments) line += (line.empty() ? "" : " ") + argument;
  throw std::runtime_error(fmt::format("`{}` failed (status {:#x}): {}", line, status, read_all(process.output.get())));
}

}  // namespace

Network::Network(std::uint32_t hosts) : switch_(new_namespace()) {
  run_command(switch_.get(), {"ip", "link", "add", "name", "switch", "type", "bridge"});
  run_command(switch_.get(), {"ip", "link", "set", "switch", "up"});
  const std::string other_side = fmt::format("/proc/{}/fd/{}", ::getpid(), switch_.get());
  for (std::uint32_t host = 0; host < hosts; ++host) {
    hosts_.push_back(new_namespace());
    const std::string port = fmt::format("port{}", host);
    command(host, {"ip", "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", other_side});
    command(host, {"ip", "address", "add", address(host) + "/24", "dev", "eth0"});
    command(host, {"ip", "link", "set", "lo", "up"});
    command(host, {"ip", "link", "set", "eth0", "up"});
    run_command(switch_.get(), {"ip", "link", "set", port, "master", "switch", "up"});
  }
}

std::string Network::address(std::uint32_t host) const { return fmt::format("10.77.0.{}", host + 1); }

void Network::inside(std::uint32_t host, const std::function<void()>& body) const {
  in_thread([&] {
    if (::setns(descriptor(host), CLONE_NEWNET) != 0)
      throw std::runtime_error(fmt::format("cannot enter the network of host {}: {}", host, errno_text(errno)));
    body();
  });
}

void Network::command(std::uint32_t host, const std::vector<std::string>& arguments) const {
  run_command(descriptor(host), arguments);
}

}  // namespace gradsync::test
