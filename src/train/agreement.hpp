// What the ranks agree on now and then so that all plan alike: the order in which gradients become ready, and times.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync {

// One step as one rank saw it; after `agree`, as all see it.
struct Observed {
  std::vector<std::uint32_t> order;  // of all parameters, when ready
  std::vector<double> ready_s;       // by parameter, since backward began
  double backward_s = 0;
  double exposed_s = 0;  // waited for communication
  double step_s = 0;     // from before forward until the gradients were there
};

// Collective. Times become the largest of all ranks. An order that all ranks saw is taken as it is; otherwise parameters
// are sorted by the sum of their positions over all ranks, ties by number: no rank is trusted alone.
void agree(Communicator& control, Observed& observed);

// When to do that, decided alike on every rank from what all know. Once after the second step that sent; from then on when
// some rank saw another order than the plan's, ever less often.
class ExchangeSchedule {
 public:
  bool due(std::uint64_t sends, bool order_differs) const;
  void done(std::uint64_t sends);

 private:
  static constexpr std::uint64_t kPlannedAfter = 2;
  static constexpr std::uint32_t kMost = 64;
  std::uint64_t not_before_ = 0, pause_ = 1;
  std::uint32_t done_ = 0;
};

}  // namespace gradsync
