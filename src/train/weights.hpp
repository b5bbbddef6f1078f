// What each rank's gradient counts in the mean over samples, without asking before each step.
//
// The mean over samples is sum(n_r g_r) / W with W = sum(n_r). Ranks send n_r N / A g_r, where A is the number of samples
// of the step before, and average as ever; the sums that travel with the bucket tell W, and all correct the result by A / W.
// With equal batches both factors are 1: nothing is multiplied, and the bits are those of the plain mean.
//
// The first step, of which there is no step before, exchanges the counts. So does each step of a model with gradients in
// f16, whose range ends at 65504: there a factor above 1 could turn a finite mean into infinity, so that all ranks divide
// by the power of two above the largest factor, and multiply the result by it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync {

class Weights {
 public:
  struct Setup {
    bool on = false;  // off: every factor is 1
    bool has_f16 = false;
    std::uint32_t rank = 0, world = 1;
  };
  Weights() = default;
  explicit Weights(const Setup& setup) : setup_(setup), counts_(setup.world) {}

  bool on() const { return setup_.on; }
  void begin_step();
  // Once a step, on every rank. Begins the exchange of the counts on `control` where this step needs one.
  void set(std::uint64_t samples, Communicator& control);
  // Samples of a pass that sends nothing: they are added to those of the step that does.
  void accumulate(std::uint64_t samples) { accumulated_ += samples; }
  bool is_set() const { return samples_.has_value(); }
  std::uint64_t samples() const { return samples_.value_or(0); }
  // Before the first factor is asked for: waits for the exchange where there is one. Throws what ended it.
  void agree();
  // This rank counts as zero, whatever its gradient holds.
  bool nothing() const { return setup_.on && samples() == 0; }

  double factor(DType dtype) const;                           // of this rank's contribution
  double correction(DType dtype, std::uint64_t total) const;  // of the result, where all ranks together had `total`
  void end_step(std::uint64_t total);

 private:
  bool exchanges() const { return setup_.on && (assumed_ == 0 || setup_.has_f16); }
  double mine() const;

  Setup setup_;
  std::vector<std::uint64_t> counts_;
  Work exchange_;
  std::optional<std::uint64_t> samples_;
  std::uint64_t accumulated_ = 0;
  std::uint64_t assumed_ = 0;  // samples of all ranks in the step before
  std::uint64_t agreed_ = 0;   // the same, or of this step where it was exchanged
  int shift_ = 0;              // f16: contributions are divided by 2^shift
};

}  // namespace gradsync
