// A dense bucket on its way: one all-reduce, or a reduce-scatter now and an all-gather later, or what the hook does.
#pragma once

#include <memory>

#include "train/bucket_plan.hpp"
#include "train/timeline.hpp"

namespace gradsync {

struct Flight {
  Work reduce;  // all-reduce, reduce-scatter, or with a hook the header's all-reduce
  Work gather;
  std::unique_ptr<BucketExchange> hooked;
  TimePoint launched{}, reduced{}, done{};
};

// What is the same for all buckets.
struct Route {
  std::uint32_t rank = 0, world = 1;
  bool deterministic = false;
  bool halves = false;  // reduce-scatter and all-gather
  const BucketHook* hook = nullptr;
};

// One bucket and where it is.
struct Cargo {
  std::uint32_t item = 0;
  const PlannedBucket* bucket = nullptr;
  View memory;
  Communicator* lane = nullptr;
  bool last = false;
};

// Throws what the communicator refuses and what the hook throws. A world of one has nothing to do, except in a hook.
void launch(const Route& route, const Cargo& cargo, Flight& flight);
// The second half. May be submitted while the first is under way: a lane does one operation after another.
void launch_gather(const Route& route, const Cargo& cargo, Flight& flight);
// Never throws.
Status finish_reduce(const Route& route, Flight& flight);
Status finish_flight(const Route& route, Flight& flight);
bool is_done(Flight& flight);

}  // namespace gradsync
