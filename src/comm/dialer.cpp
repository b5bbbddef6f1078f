#include "comm/dialer.hpp"

#include "base/limits.hpp"
#include "comm/handshake.hpp"
#include "comm/sockets.hpp"

namespace gradsync {

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
    if (!socket)
      return peer_failure(ErrorCode::peer_lost, static_cast<int>(call.to), "open a stream to rank {}: {}", call.to,
                          socket.status().message);
    return Line{std::move(*socket), encode(hello)};
  }
  const Deadline deadline = Deadline::after(limits::handshake_timeout);
  auto socket = connect_abstract(place.unix_name, deadline);
  Status status = socket.status();
  if (status && !peer_is_our_user(socket->get()))
    status = failure(ErrorCode::unavailable, "abstract UNIX socket {} belongs to another user", place.unix_name);
  if (status) status = send_all(socket->get(), encode(hello), deadline, call.memory);
  if (!status)
    return peer_failure(ErrorCode::peer_lost, static_cast<int>(call.to), "open a stream to rank {}: {}", call.to,
                        status.message);
  return Line{std::move(*socket), {}};
}

std::string EndpointDialer::describe(std::uint32_t rank) const {
  if (rank >= membership_->places.size()) return "unknown host";
  const Place& place = membership_->places[rank];
  return fmt::format("host {} ({})", place.label, text(place.tcp));
}

}  // namespace gradsync
