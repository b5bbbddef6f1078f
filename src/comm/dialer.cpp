#include "comm/dialer.hpp"

#include "base/limits.hpp"
#include "comm/handshake.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

// A peer that is not there or does not answer is lost; what this process lacks itself is no peer's fault.
Status unopened(std::uint32_t to, const Status& why) {
  const bool blameless = why.code == ErrorCode::out_of_memory || why.code == ErrorCode::unavailable;
  return peer_failure(blameless ? why.code : ErrorCode::peer_lost, blameless ? -1 : static_cast<int>(to),
                      "open a stream to rank {}: {}", to, why.message);
}

}  // namespace

Result<Dialer::Line> EndpointDialer::dial(const Call& call) {
  GRADSYNC_CHECK(call.to < membership_->size);
  GRADSYNC_CHECK((call.kind == TransportKind::shm) == (call.memory >= 0));
  const Hello hello{.channel = call.channel,
                    .job = membership_->job,
                    .epoch = epoch_,
                    .from = membership_->rank,
                    .to = call.to,
                    .lane = static_cast<std::uint16_t>(call.lane),
                    .lanes = static_cast<std::uint16_t>(call.lanes)};
  const Place& place = membership_->places[call.to];
  if (call.kind != TransportKind::shm) {
    auto socket = connect_tcp(place.tcp);
    if (!socket) return unopened(call.to, socket.status());
    return Line{std::move(*socket), encode(hello)};
  }
  const Deadline deadline = Deadline::after(limits::handshake_timeout);
  auto socket = connect_abstract(place.unix_name, deadline);
  Status status = socket.status();
  if (status && !peer_is_our_user(socket->get()))
    status = failure(ErrorCode::peer_lost, "abstract UNIX socket {} belongs to another user", place.unix_name);
  if (status) status = send_all(socket->get(), encode(hello), deadline, call.memory);
  if (!status) return unopened(call.to, status);
  return Line{std::move(*socket), {}};
}

std::string EndpointDialer::describe(std::uint32_t rank) const {
  if (rank >= membership_->places.size()) return "unknown host";
  const Place& place = membership_->places[rank];
  return fmt::format("host {} ({})", place.label, text(place.tcp));
}

}  // namespace gradsync
