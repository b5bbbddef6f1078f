// A few "hosts" on this machine: network namespaces, each with lo and eth0, joined by a switch (an Ethernet bridge in a
// namespace of its own). They have no names: the kernel removes them, with their interfaces, once the last process and
// descriptor that holds them is gone, also when the test is killed. The machine's own network sees nothing of it.
// Needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN) and the program `ip`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace gradsync::test {

class Network {
 public:
  // Throws std::runtime_error that says what is missing.
  explicit Network(std::uint32_t hosts = 2);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::uint32_t hosts() const { return static_cast<std::uint32_t>(hosts_.size()); }
  std::string address(std::uint32_t host) const;                              // 10.77.0.(host + 1)
  int descriptor(std::uint32_t host) const { return hosts_.at(host).get(); }  // of the namespace, for setns
  // Calls it in a thread that is on that host and waits for it: sockets that it makes stay there. What it throws is thrown.
  void inside(std::uint32_t host, const std::function<void()>& body) const;
  // Runs a program there, for instance {"ip", "link", "set", "eth0", "down"}. Throws if it does not exit with 0.
  void command(std::uint32_t host, const std::vector<std::string>& arguments) const;

 private:
  std::vector<Descriptor> hosts_;
  Descriptor switch_;
};

}  // namespace gradsync::test
