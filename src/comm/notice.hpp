// Failure verdicts told to peers, on short-lived connections of their own, so that a stream that is stuck cannot hold them back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "comm/membership.hpp"

namespace gradsync {

struct Notice {
  std::uint32_t from = 0;  // the teller's rank in the communicator
  Status status;           // `peer` is a rank of the communicator
};

// A notice may also be a word of where its sender waits: the header of the messages of that collective, in place of a
// verdict's text. The peer that is waited for finds out whether it has called something else. If it waits in the same call itself,
// it answers with a chain: the rank that it waits for, whom that one is known to wait for, and so on.
struct WaitingWord {
  std::string frame_header;
  std::vector<std::uint32_t> chain;  // empty unless it is an answer
};
inline constexpr std::size_t kWaitingChainMax = 64;
Status waiting_notice(const WaitingWord& word);
bool is_waiting_notice(const Status& status);
std::optional<WaitingWord> waiting_word(const Status& waiting_notice);  // nothing if it is malformed

// Tells `status` to the ranks `to` of the membership's group, all at the same time. Returns when the bytes are with the
// kernel for each, or at the deadline; peers that cannot be reached are skipped (they are dead or done). The text is cut
// to limits::notice_bytes_max. Allocates and blocks; never throws. `from` in `to` is skipped.
// Returns to how many ranks it was handed.
std::size_t send_notices(const Membership& membership, std::uint64_t epoch, std::uint32_t from,
                         std::span<const std::uint32_t> to, const Status& status, Deadline deadline);

// The payload behind a Hello of kind notice: u8 code, i32 peer, then the text.
std::string encode_notice(const Status& status);
std::optional<Status> decode_notice(std::span<const std::byte> payload);

}  // namespace gradsync
