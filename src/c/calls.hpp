// What a caller of C wants, as a call of the communicator.
#pragma once

#include "gradsync/communicator.hpp"
#include "gradsync/gradsync.h"

namespace gradsync::c {

// With both views whole, ready for the communicator, which checks what they say.
struct Call {
  Collective collective = Collective::barrier;
  ConstView input = {};
  View output = {};
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  std::span<const std::size_t> counts = {}, recv_counts = {};
  CallOptions options = {};
};
void run(Communicator& comm, const Call& call);
Work start(Communicator& comm, const Call& call);

CallOptions call_options_of(const gradsync_call_options* given);  // null: the defaults

// In the words of the plain functions: one count, or one array of counts, from which the sizes of both sides follow.
struct Wanted {
  Collective collective = Collective::barrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  bool uneven = false;  // `counts` instead of `count`
  const std::size_t* counts = nullptr;
  const std::size_t* recv_counts = nullptr;
  gradsync_dtype dtype = GRADSYNC_U8;
  gradsync_op op = GRADSYNC_SUM;
  int root = 0;
};

// The bodies of all functions of operations.
gradsync_code run(const char* function, gradsync_comm* comm, const Wanted& wanted,
                  const gradsync_call_options* options);
gradsync_code start(const char* function, gradsync_comm* comm, const Wanted& wanted,
                    const gradsync_call_options* options, gradsync_work** work);

}  // namespace gradsync::c
