// What a message and a reduction cost: the Hockney model (latency and time a byte) with LogP's overhead a message, on
// one level or on two.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradsync {

// Seconds that a message is on its way, and seconds a byte that it occupies the sender's and the receiver's port.
struct Link {
  double alpha_s = 0;
  double beta_s_per_byte = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// Seconds a byte that the port of one host is occupied, whatever is at the other end.
struct HostPort {
  double out_s_per_byte = 0;
  double in_s_per_byte = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Every rank has a port out and a port in, each one message at a time, and one processor. Between hosts, with
// `nic_shared`, all ranks of a host share one port out and one port in instead.
struct Network {
  Link inside;   // between ranks of one host
  Link between;  // between hosts
  bool nic_shared = false;
  double gamma_s_per_byte = 0;  // of a reduction, of each byte added
  double overhead_s = 0;        // of the processor, for each message sent and for each received
  // By host number, where hosts differ: instead of `between`'s time a byte. Empty: all are alike.
  std::vector<HostPort> ports = {};

  // How long a byte from one rank to another occupies the sender's port out, and the receiver's port in.
  double out_s_per_byte(std::span<const std::uint32_t> hosts, std::uint32_t from, std::uint32_t to) const {
    if (!crosses(hosts, from, to)) return inside.beta_s_per_byte;
    return hosts[from] < ports.size() ? ports[hosts[from]].out_s_per_byte : between.beta_s_per_byte;
  }
  double in_s_per_byte(std::span<const std::uint32_t> hosts, std::uint32_t from, std::uint32_t to) const {
    if (!crosses(hosts, from, to)) return inside.beta_s_per_byte;
    return hosts[to] < ports.size() ? ports[hosts[to]].in_s_per_byte : between.beta_s_per_byte;
  }

  // The same link between all ranks.
  static Network uniform(Link link, double gamma_s_per_byte = 0, double overhead_s = 0) {
    return {link, link, false, gamma_s_per_byte, overhead_s, {}};
  }
  static Network two_level(Link inside, Link between, double gamma_s_per_byte = 0, double overhead_s = 0) {
    return {inside, between, true, gamma_s_per_byte, overhead_s, {}};
  }
  // `hosts` as in Recipe: empty if all ranks are on one host.
  static bool crosses(std::span<const std::uint32_t> hosts, std::uint32_t from, std::uint32_t to) {
    return !hosts.empty() && hosts[from] != hosts[to];
  }
  friend bool operator==(const Network&, const Network&) = default;
};

}  // namespace gradsync
