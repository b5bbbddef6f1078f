// Where the workers of a run meet: a store that the launcher of the first host holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.hpp"

namespace gradsync {
class StoreServer;
}

namespace gradsync::cli {

struct Meeting {
  std::string host;        // name or address that every host can reach
  std::uint16_t port = 0;  // 0: any free one, for a meeting of one host
  std::string job;         // workers of other jobs are turned away
  bool held_here = true;
};

// On the loopback address, at a free port, of a random job.
Meeting local_meeting();

struct HeldMeeting {
  HeldMeeting();
  HeldMeeting(HeldMeeting&&) noexcept;
  ~HeldMeeting();
  std::unique_ptr<StoreServer> server;  // none if another host holds it
  std::string rendezvous;               // GRADSYNC_RENDEZVOUS of the workers
};

// Starts the store if it is to be held here. Starts a thread. Errors: unavailable (port taken, address not of this host).
Result<HeldMeeting> hold_meeting(const Meeting& meeting);

}  // namespace gradsync::cli
