// What a Work shares with its operation.
#pragma once

#include "comm/group.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

struct Work::State {
  std::shared_ptr<Group> group;
  std::shared_ptr<Completion> completion;
  std::uint64_t sequence = 0;
  TimePoint deadline;  // of the operation; the engine ends it then
};

// Waits until the operation has ended, which its deadline bounds, and returns how.
Status finish(const Work::State& state);

}  // namespace gradsync
