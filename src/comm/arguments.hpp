// Checks what a caller passed and words what is wrong with it; makes the engine's request of it.
#pragma once

#include <span>

#include "comm/plan.hpp"
#include "engine/operation.hpp"

namespace gradsync {

// A call as it comes from the public face.
struct Asked {
  Collective collective = Collective::barrier;
  ConstView input = {};
  View output = {};
  ReduceOp op = ReduceOp::sum;
  int root = 0;                                   // for send and recv: the other rank, or any_rank
  std::span<const std::size_t> counts = {};       // block sizes; all_to_all: what is sent to each rank
  std::span<const std::size_t> recv_counts = {};  // all_to_all only
  CallOptions options = {};
};

struct Caller {
  std::uint32_t rank = 0, size = 1;
  std::chrono::nanoseconds timeout{0};  // of calls that name none
  PlanBook* plans = nullptr;
};

// Throws Error(invalid_argument, unsupported or out_of_memory); nothing has been done then.
Request make_request(const Caller& caller, const Asked& asked);

}  // namespace gradsync
