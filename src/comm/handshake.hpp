// The first bytes on every connection to an endpoint.
//
//   offset  0  u32 magic "GSY1"     16  u64 epoch         36  u16 lane
//           4  u16 version          24  u32 from rank     38  u16 lanes
//           6  u8  kind             28  u32 to rank       40  u32 payload bytes behind (notice, probe; 0 for streams)
//           7  u8  channel          32  u32 reserved      44  u32 reserved
//           8  u64 job
//
// Little-endian, fixed size. A stream's own bytes follow at once, so an acceptor reads these 48 and not one more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/limits.hpp"
#include "transport/transport.hpp"

namespace gradsync {

inline constexpr std::size_t kHelloBytes = 48;
inline constexpr std::uint16_t kHelloVersion = 1;
inline constexpr std::size_t kHelloPayloadMax = limits::notice_bytes_max + 16;

enum class HelloKind : std::uint8_t { stream, notice, probe };

struct Hello {
  HelloKind kind = HelloKind::stream;
  Channel channel = Channel::collective;
  std::uint64_t job = 0;
  std::uint64_t epoch = 0;  // of the communicator; from and to are its ranks. Probes: 0 and world ranks
  std::uint32_t from = 0, to = 0;
  std::uint16_t lane = 0, lanes = 1;
  std::uint32_t payload_bytes = 0;
  friend bool operator==(const Hello&, const Hello&) = default;
};

std::string encode(const Hello& hello);
// Nothing if these are not the bytes of a handshake, or a field is out of its limits.
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);

}  // namespace gradsync
