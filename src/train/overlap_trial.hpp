// Whether the step without a barrier is worth having here: both ways are tried for some steps, and the faster one stays. Where
// the processors themselves move the bytes (shared memory) hiding communication hides nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

// Counts steps that sent, so that every rank decides at the same ones. Starts with the barrier.
class OverlapTrial {
 public:
  OverlapTrial() = default;  // nothing to decide
  // `wanted`: without_barrier is asked for, unless it is not worth it.
  explicit OverlapTrial(bool wanted) : stage_(wanted ? Stage::waiting : Stage::decided) {}

  bool decided() const { return stage_ == Stage::decided; }
  // After the step that planned: the largest exposed time of all ranks, of a step's. Too little to hide ends the trial.
  void begin(double exposed_s, double step_s);
  // A step begins, `sends` have been.
  void step_begins(std::uint64_t sends, TimePoint now);
  // Enough steps of the present way have been timed: `next` is due.
  bool due() const;
  // Collective. Whether the next steps go without the barrier.
  bool next(Communicator& control);

  static constexpr std::size_t kSteps = 5;      // timed each way
  static constexpr std::size_t kWarmUp = 2;     // before, not timed
  static constexpr double kWorthHiding = 0.02;  // of a step
  static constexpr double kClearlyFaster = 0.99;

 private:
  enum class Stage : std::uint8_t { waiting, with_barrier, without_barrier, decided };
  double typical() const;

  Stage stage_ = Stage::decided;
  std::uint64_t sends_ = 0;
  TimePoint at_{};
  std::vector<double> periods_s_;
  double with_barrier_s_ = 0;
};

}  // namespace gradsync
