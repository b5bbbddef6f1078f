// What a Work shares with its operation.
#pragma once

#include "comm/group.hpp"
#include "comm/site.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

struct Work::State {
  std::shared_ptr<Group> group;
  std::weak_ptr<Site> site;  // whose progress thread goes on when a waiting thread leaves
  std::shared_ptr<Completion> completion;
  std::uint64_t sequence = 0;
  TimePoint deadline;  // of the operation; the engine ends it then
};

// Waits at most until then, and leaves what else is under way to the progress thread.
void wait_until(const Work::State& state, TimePoint until);
// Waits until the operation has ended, which its deadline bounds, and returns how.
Status finish(const Work::State& state);

}  // namespace gradsync
