// Do two ranks share a host? Asked by doing what shared memory needs, never by comparing names: one passes memory over an
// abstract UNIX socket, the other reads a number from it and writes one into it, and each checks what the other wrote.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace gradsync {

struct ProbeTarget {
  std::string unix_name;
  std::uint64_t job = 0;
  std::uint32_t from = 0, to = 0;  // world ranks
};

// Ok if the target's endpoint maps our memory and we see what it writes; else why not.
Status probe_host(const ProbeTarget& target, Deadline deadline);

// The acceptor's half: payload is the nonce that the memory must hold. False if the memory is unfit or does not.
bool answer_probe(int socket, int memory, std::span<const std::byte> payload);

}  // namespace gradsync
