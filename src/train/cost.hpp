// What a message costs, measured on the communicator itself.
#pragma once

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

// Collective. All-reduces of a small and a large size (as large as takes some milliseconds, 4 MiB at most), medians, the
// largest of all ranks: equal on all. Takes about 0.1 s, or some six all-reduces where one takes longer than 25 ms. One rank:
// zero.
MessageCost measure_cost(Communicator& comm);

}  // namespace gradsync
