// What a communicator plans by, for the tool and the tests.
#pragma once

#include "comm/links.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

struct Inspector {
  static Network network(Communicator& communicator);
  // How a call that leaves the choice to the library would be done now. `bytes` as in PlanBook::Wanted.
  static Recipe chosen(Communicator& communicator, Collective collective, std::uint64_t bytes);
  // By host, as measured; none if nobody has.
  static std::vector<HostPort> ports(Communicator& communicator);
  // Collective. Nothing if there are fewer than three hosts.
  static void measure_links(Communicator& communicator);
};

}  // namespace gradsync
