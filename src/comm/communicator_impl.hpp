// What a communicator holds.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/arguments.hpp"
#include "comm/group.hpp"
#include "comm/links.hpp"
#include "comm/site.hpp"
#include "comm/work.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

struct Communicator::Impl {
  std::shared_ptr<Site> site;
  std::vector<std::uint32_t> members;  // ranks of the job
  std::vector<std::uint32_t> hosts;    // host number of each member
  std::uint32_t rank = 0;
  std::chrono::nanoseconds timeout{0};
  std::uint32_t cores = 1;
  std::shared_ptr<PlanBook> plans;
  std::shared_ptr<Links> links;
  std::shared_ptr<Group> group;
  std::mutex groups_mutex;
  std::map<std::uint64_t, std::uint64_t> groups_made;  // by hash of the members: how often

  std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
  Work start(const Asked& asked);
  void run(const Asked& asked) { throw_if_failed(gradsync::finish(state_of(asked))); }
  int receive(const Asked& asked);  // returns whom it came from
  Work::State state_of(const Asked& asked);
  std::uint64_t submit(Request request, std::shared_ptr<Completion> completion);
  void measure_links();
};

inline Communicator::Impl& alive(const std::unique_ptr<Communicator::Impl>& impl) {
  if (!impl) throw Error(failure(ErrorCode::closed, "the communicator is empty or was moved from"));
  return *impl;
}

}  // namespace gradsync
