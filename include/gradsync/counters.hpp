// What a communicator has moved and reduced.
#pragma once

#include <cstdint>

namespace gradsync {

// What has crossed the wire of this communicator, counted at the sender (and the receiver) in whole messages. Bytes are
// payload, without headers. What the library sends to measure links is not among them.
struct Counters {
  std::uint64_t messages_sent = 0, bytes_sent = 0;
  std::uint64_t messages_received = 0, bytes_received = 0;
  std::uint64_t elements_reduced = 0;
  std::uint64_t operations = 0;
  std::uint64_t staging_bytes_peak = 0;  // of messages that landed before they could take effect
};

}  // namespace gradsync
