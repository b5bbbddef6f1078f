// What a rank called: the fingerprint that travels in every frame, so that a mismatch is found by its first message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/limits.hpp"
#include "base/status.hpp"
#include "gradsync/types.hpp"

namespace gradsync {

struct Call {
  Collective collective = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;             // sum where nothing is reduced
  Algorithm algorithm = Algorithm::flat;
  std::uint32_t root = 0;                  // 0 where there is no root
  std::uint32_t segments = 1;
  std::uint64_t count = 0;                 // elements of the message, or of a block where blocks are equal
  std::uint64_t counts_hash = 0;           // of the given block sizes, 0 where blocks are equal
  friend bool operator==(const Call&, const Call&) = default;
};

// "all_reduce of 100 f32, sum, by ring": what a person reads of a call.
std::string describe(const Call& call);

// What precedes each message on a stream.
struct FrameHeader {
  std::uint64_t epoch = 0;          // of the communicator
  std::uint64_t sequence = 0;       // the operation's number on it (collectives), or on the pair (send and recv)
  std::uint64_t payload_bytes = 0;
  Call call;
};
using FrameBytes = std::array<std::byte, limits::frame_header_bytes>;

FrameBytes encode(const FrameHeader& header);
// Fails with `protocol` for bytes that are no frame of this version.
Result<FrameHeader> decode_frame(std::span<const std::byte> bytes);

}  // namespace gradsync
