#include "train/overlap_trial.hpp"

#include <algorithm>

namespace gradsync {

void OverlapTrial::begin(double exposed_s, double step_s) {
  if (stage_ == Stage::waiting) stage_ = exposed_s > kWorthHiding * step_s ? Stage::with_barrier : Stage::decided;
}

// Only periods in which exactly one step sent count.
void OverlapTrial::step_begins(std::uint64_t sends, TimePoint now) {
  if (stage_ == Stage::waiting || stage_ == Stage::decided) return;
  if (sends == sends_) return;
  if (at_ != TimePoint{}) periods_s_.push_back(std::chrono::duration<double>(now - at_).count());
  sends_ = sends;
  at_ = now;
}

bool OverlapTrial::due() const {
  return (stage_ == Stage::with_barrier || stage_ == Stage::without_barrier) && periods_s_.size() >= kWarmUp + kSteps;
}

double OverlapTrial::typical() const {
  std::vector<double> timed(periods_s_.begin() + kWarmUp, periods_s_.end());
  std::nth_element(timed.begin(), timed.begin() + static_cast<std::ptrdiff_t>(timed.size() / 2), timed.end());
  return timed[timed.size() / 2];
}

bool OverlapTrial::next(Communicator& control) {
  double period_s = typical();
  control.all_reduce(View{&period_s, 1, DType::f64}, ReduceOp::max);
  periods_s_.clear();
  at_ = {};
  if (stage_ == Stage::with_barrier) {
    with_barrier_s_ = period_s;
    stage_ = Stage::without_barrier;
    return true;
  }
  stage_ = Stage::decided;
  return period_s < kClearlyFaster * with_barrier_s_;
}

}  // namespace gradsync
