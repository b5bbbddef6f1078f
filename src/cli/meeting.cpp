#include "cli/meeting.hpp"

#include <random>

#include "base/random.hpp"
#include "comm/address.hpp"
#include "comm/store_server.hpp"

namespace gradsync::cli {
namespace {

constexpr auto resolve_timeout = std::chrono::seconds(10);

// A host's own name often means its loopback address to itself (127.0.1.1); the others come to another one.
Address listening_address(const Address& named) {
  if (!named.loopback()) return named;
  Address any = named;
  any.bytes = {};
  return any;
}

std::string rendezvous_text(const std::string& host, std::uint16_t port, const std::string& job) {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("tcp://{}{}{}:{}/{}", brackets ? "[" : "", host, brackets ? "]" : "", port, job);
}

}  // namespace

HeldMeeting::HeldMeeting() = default;
HeldMeeting::HeldMeeting(HeldMeeting&&) noexcept = default;
HeldMeeting::~HeldMeeting() = default;

Meeting local_meeting() {
  std::random_device device;
  const std::uint64_t number = mix64(std::uint64_t{device()} << 32 | device());
  return {"127.0.0.1", 0, fmt::format("{:016x}", number), true};
}

Result<HeldMeeting> hold_meeting(const Meeting& meeting) {
  HeldMeeting held;
  std::uint16_t port = meeting.port;
  if (meeting.held_here) {
    auto addresses = resolve(meeting.host, port, Deadline::after(resolve_timeout));
    if (!addresses) return addresses.status();
    GRADSYNC_CHECK(!addresses->empty());
    const Address& named = addresses->front();
    auto server = StoreServer::start(port == 0 ? named : listening_address(named), meeting.job);
    if (!server) return server.status();
    held.server = std::move(*server);
    port = held.server->address().port;
  }
  held.rendezvous = rendezvous_text(meeting.host, port, meeting.job);
  return held;
}

}  // namespace gradsync::cli
