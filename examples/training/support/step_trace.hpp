// When what happened in one step, on every rank: collected by rank 0 and written in Chrome's trace event format, which
// Perfetto (https://ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <vector>

#include "gradsync/communicator.hpp"
#include "gradsync/gradient_sync.hpp"

namespace training {

double now_s();  // of the steady clock, which all processes of a host share

// One rank's step. Seconds since `begin_s`; the optimiser's time ends the step.
struct StepSpans {
  double begin_s = 0;  // by now_s(): forward begins
  double forward_end_s = 0, backward_end_s = 0, end_s = 0;
  gradsync::StepTimeline sync;  // its zero is `begin_s` too
};

// The last few steps of this rank.
class StepTrace {
 public:
  void add(StepSpans step);
  // Collective; every rank has added the same steps. Of the steps kept, the one that took rank 0 the median time; on rank 0 an entry
  // for each rank, elsewhere nothing.
  std::vector<StepSpans> collect(gradsync::Communicator& comm) const;

 private:
  std::deque<StepSpans> kept_;
};

// Throws std::runtime_error naming the file and the cause. Times begin with the earliest rank's step.
void write_trace(const std::vector<StepSpans>& ranks, const std::filesystem::path& file);

}  // namespace training
