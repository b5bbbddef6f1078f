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
  ReduceOp op = ReduceOp::sum;  // sum where nothing is reduced
  Algorithm algorithm = Algorithm::flat;
  std::uint32_t root = 0;  // 0 where there is no root
  std::uint32_t segments = 1;
  std::uint64_t count = 0;        // elements of the message, or of a block where blocks are equal
  std::uint64_t counts_hash = 0;  // of the given block sizes, 0 where blocks are equal
  std::uint32_t tag = 0;          // of send and recv; of others: which of the library's own operations on behalf of it
  friend bool operator==(const Call&, const Call&) = default;
};

// "all_reduce of 100 f32, sum, by ring": what a person reads of a call.
std::string describe(const Call& call);

// The latest collectives of a communicator that this rank has finished, so that a late word about one can be answered.
class CallHistory {
 public:
  void add(std::uint64_t sequence, const Call& call) { calls_[sequence % calls_.size()] = {sequence, call}; }
  // The call of that number; nothing if it is not among the latest.
  const Call* find(std::uint64_t sequence) const {
    const Past& past = calls_[sequence % calls_.size()];
    return sequence != 0 && past.sequence == sequence ? &past.call : nullptr;
  }

 private:
  struct Past {
    std::uint64_t sequence = 0;
    Call call;
  };
  std::array<Past, 64> calls_;
};

// What precedes each message on a stream.
struct FrameHeader {
  std::uint64_t epoch = 0;     // of the communicator
  std::uint64_t sequence = 0;  // the operation's number on it (collectives), or on the pair (send and recv)
  std::uint64_t payload_bytes = 0;
  Call call;
};
using FrameBytes = std::array<std::byte, limits::frame_header_bytes>;

// Whether two ranks called the same; what one receives the other sends.
bool same_call(Call mine, Call theirs);
// A call as one rank made it.
struct Made {
  std::uint32_t rank = 0;
  std::uint64_t sequence = 0;
  Call call;
};
// "rank 2 called broadcast #1 (…), rank 0 called …".
Status mismatch(const Made& theirs, const Made& mine);

FrameBytes encode(const FrameHeader& header);
// Fails with `protocol` for bytes that are no frame of this version.
Result<FrameHeader> decode_frame(std::span<const std::byte> bytes);

}  // namespace gradsync
