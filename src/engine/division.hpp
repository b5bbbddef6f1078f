// Where the division of an average happens: in the step that writes a chunk of the output last.
//
// A proven schedule ends with the whole sum in every chunk of the output, so what the last write leaves is the whole sum: it
// is divided as it is written, while it is in the cache, and no pass over the memory follows. In an all-reduce a chunk whose
// last write receives another rank's value is left alone: that rank sent it after its own last write, divided already. In
// the other reductions only undivided values travel. A test checks for every schedule of the catalogue that sender and
// receiver agree.
#pragma once

#include <vector>

#include "schedule/schedule.hpp"

namespace gradsync {

// For each step of a reduction whether it divides what it writes. O(chunks named by the steps).
std::vector<bool> dividing_steps(const Schedule& schedule);

}  // namespace gradsync
