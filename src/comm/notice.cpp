#include "comm/notice.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/limits.hpp"
#include "base/wire.hpp"
#include "comm/handshake.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kParallelMax = 256;  // sockets open at a time

struct Telling {
  Descriptor socket;
  std::string bytes;
  std::size_t sent = 0;
};

bool open_telling(const Membership& membership, const Hello& hello, const std::string& payload, Deadline deadline,
                  Telling& out) {
  const Place& place = membership.places[hello.to];
  const bool same_host = membership.hosts[hello.from] == membership.hosts[hello.to];
  Result<Descriptor> socket = same_host ? connect_abstract(place.unix_name, deadline) : connect_tcp(place.tcp);
  if (!socket) return false;
  out = {std::move(*socket), encode(hello) + payload, 0};
  return true;
}

// Moves what can be moved; false when it is finished or failed.
bool advance(Telling& telling, std::size_t& told) {
  while (telling.sent < telling.bytes.size()) {
    const ssize_t sent = ::send(telling.socket.get(), telling.bytes.data() + telling.sent,
                                telling.bytes.size() - telling.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) telling.sent += static_cast<std::size_t>(sent);
    else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN || errno == EINPROGRESS)
      return true;
    else return false;
  }
  ++told;
  return false;
}

std::size_t drive(std::vector<Telling>& open, Deadline deadline) {
  std::size_t told = 0;
  while (!open.empty()) {
    std::vector<pollfd> waits;
    for (const Telling& telling : open) waits.push_back({telling.socket.get(), POLLOUT, 0});
    if (::poll(waits.data(), waits.size(), deadline.poll_milliseconds()) <= 0 && deadline.passed()) break;
    std::vector<Telling> left;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (waits[i].revents == 0 || advance(open[i], told)) left.push_back(std::move(open[i]));
    open = std::move(left);
  }
  return told;
}

}  // namespace

namespace {
constexpr int kWaitingMark = -2;  // in place of the rank to blame
}

Status waiting_notice(const WaitingWord& word) {
  std::string chain(4 * std::min(word.chain.size(), kWaitingChainMax), '\0');
  WireWriter wire(as_writable_bytes(chain));
  for (std::size_t i = 0; i < chain.size() / 4; ++i) wire.u32(word.chain[i]);
  return {ErrorCode::mismatch, kWaitingMark, word.frame_header + chain};
}

std::optional<WaitingWord> waiting_word(const Status& waiting_notice) {
  const std::string& text = waiting_notice.message;
  if (text.size() < limits::frame_header_bytes || (text.size() - limits::frame_header_bytes) % 4 != 0)
    return std::nullopt;
  WireReader wire(as_bytes(text));
  WaitingWord word{wire.bytes(limits::frame_header_bytes), {}};
  while (wire.left() > 0) word.chain.push_back(wire.u32());
  if (word.chain.size() > kWaitingChainMax) return std::nullopt;
  return word;
}

bool is_waiting_notice(const Status& status) {
  return status.code == ErrorCode::mismatch && status.peer == kWaitingMark;
}

std::string encode_notice(const Status& status) {
  const std::string_view message = std::string_view(status.message).substr(0, limits::notice_bytes_max);
  std::string out(5 + message.size(), '\0');
  WireWriter wire({reinterpret_cast<std::byte*>(out.data()), out.size()});
  wire.u8(static_cast<std::uint8_t>(status.code));
  wire.u32(static_cast<std::uint32_t>(status.peer));
  wire.bytes(message);
  return out;
}

std::optional<Status> decode_notice(std::span<const std::byte> payload) {
  WireReader wire(payload);
  const std::uint8_t code = wire.u8();
  const int peer = static_cast<int>(wire.u32());
  if (!wire.ok() || code == 0 || code >= kErrorCodeCount || wire.left() > limits::notice_bytes_max) return std::nullopt;
  return Status{static_cast<ErrorCode>(code), peer, wire.bytes(wire.left())};
}

std::size_t send_notices(const Membership& membership, std::uint64_t epoch, std::uint32_t from,
                         std::span<const std::uint32_t> to, const Status& status, Deadline deadline) {
  if (status.ok()) return 0;
  const std::string payload = encode_notice(status);
  std::size_t told = 0;
  std::vector<Telling> open;
  for (std::uint32_t rank : to) {
    if (rank == from || rank >= membership.size || from >= membership.size) continue;
    Hello hello{.kind = HelloKind::notice,
                .job = membership.job,
                .epoch = epoch,
                .from = from,
                .to = rank,
                .payload_bytes = static_cast<std::uint32_t>(payload.size())};
    Telling telling;
    if (open_telling(membership, hello, payload, deadline, telling)) open.push_back(std::move(telling));
    if (open.size() == kParallelMax) told += drive(open, deadline), open.clear();
  }
  return told + drive(open, deadline);
}

}  // namespace gradsync
