// Training with the large batches that many workers make: how the learning rate grows with the batch, how it is warmed up, and
// how each layer's step is kept in proportion to its weights.
//
//   gradsync::torch::LargeBatchRate rate({.rate = 0.1, .reference_batch = 256, .batch = 64u * comm.size(), .warmup_steps = 500});
//   torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(rate.at(0)).momentum(0.9));
//   gradsync::torch::LayerwiseAdaptive optimizer(sgd, {.weight_decay = 5e-4});
//   …  gradsync::torch::set_rate(sgd, rate.at(step));  model.step(optimizer);
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "gradsync/gradient_sync.hpp"

namespace gradsync::torch {

enum class RateScaling : std::uint8_t {
  linear,       // rate * batch / reference_batch (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1)
  square_root,  // rate * sqrt(batch / reference_batch), usual with adaptive optimisers
  none,
};

struct LargeBatchOptions {
  double rate = 0.1;                    // that is right for the reference batch, above 0
  std::uint64_t reference_batch = 256;  // samples, at least 1
  std::uint64_t batch = 256;            // samples of all ranks together in a step, at least 1
  // From rate to the scaled rate in equal steps over so many steps (section 2.2, gradual warm-up).
  std::uint64_t warmup_steps = 0;
  RateScaling scaling = RateScaling::linear;
};

// A learning rate as a function of the step; a value. Schedules that decay multiply what `at` says.
class LargeBatchRate {
 public:
  explicit LargeBatchRate(LargeBatchOptions options);  // invalid_argument names what is out of range
  double scaled() const { return scaled_; }            // after warm-up
  double at(std::uint64_t step) const;                 // step 0 is the first

 private:
  LargeBatchOptions options_;
  double scaled_;
};

// Of every parameter group. Works between steps, in both overlaps.
void set_rate(::torch::optim::Optimizer& optimizer, double rate);

struct LayerwiseOptions {
  double trust = 0.001;  // the coefficient of section 4, above 0
  double weight_decay = 0;
  double epsilon = 1e-8;
  // As a clip: the step of a layer never exceeds the one that the plain rate would make.
  bool clip = false;
};

// Layer-wise adaptive rates (You, Gitman, Ginsburg 2017, "Large Batch Training of Convolutional Networks", section 4) around
// any optimiser: before its step, the gradient of each parameter of two or more dimensions becomes
//   trust * |w| / (|g| + weight_decay * |w| + epsilon) * (g + weight_decay * w),
// where |.| is the 2-norm; parameters of one dimension (biases, norms) keep theirs, without decay, as is usual. The inner
// optimiser has no weight decay of its own. Gradients are equal on all ranks, and so are the steps. Treats each parameter by
// itself, so that it works in both overlaps. State is the inner optimiser's: save that one in checkpoints.
class LayerwiseAdaptive : public ::torch::optim::Optimizer {
 public:
  LayerwiseAdaptive(::torch::optim::Optimizer& inner, LayerwiseOptions options);
  ::torch::Tensor step(LossClosure closure = nullptr) override;
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;
  ::torch::optim::Optimizer& inner() const { return inner_; }

 private:
  ::torch::optim::Optimizer& inner_;
  LayerwiseOptions options_;
};

}  // namespace gradsync::torch
