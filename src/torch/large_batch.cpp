#include "gradsync/torch/large_batch.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"

namespace gradsync::torch {
namespace {

double scale_of(const LargeBatchOptions& options) {
  const double ratio = static_cast<double>(options.batch) / static_cast<double>(options.reference_batch);
  switch (options.scaling) {
    case RateScaling::linear: return ratio;
    case RateScaling::square_root: return std::sqrt(ratio);
    case RateScaling::none: break;
  }
  return 1;
}

void check(const LargeBatchOptions& options) {
  if (!(options.rate > 0) || !std::isfinite(options.rate))
    throw Error(failure(ErrorCode::invalid_argument, "large batch: the rate is {}, expected above 0", options.rate));
  if (options.reference_batch == 0 || options.batch == 0)
    throw Error(failure(ErrorCode::invalid_argument,
                        "large batch: the reference batch is {} and the batch {}, expected at least 1 each",
                        options.reference_batch, options.batch));
}

void adapt(const ::torch::Tensor& parameter, double rate, const LayerwiseOptions& options) {
  ::torch::Tensor gradient = parameter.grad();
  const double weights = parameter.norm().item<double>(), slope = gradient.norm().item<double>();
  if (weights == 0 || slope == 0) return;
  double trust = options.trust * weights / (slope + options.weight_decay * weights + options.epsilon);
  if (options.clip) trust = std::min(trust / rate, 1.0);
  if (options.weight_decay != 0) gradient.add_(parameter, options.weight_decay);
  gradient.mul_(trust);
}

}  // namespace

LargeBatchRate::LargeBatchRate(LargeBatchOptions options) : options_(options), scaled_(0) {
  check(options_);
  scaled_ = options_.rate * scale_of(options_);
}

double LargeBatchRate::at(std::uint64_t step) const {
  if (step >= options_.warmup_steps) return scaled_;
  const double done = static_cast<double>(step) / static_cast<double>(options_.warmup_steps);
  return options_.rate + (scaled_ - options_.rate) * done;
}

void set_rate(::torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

LayerwiseAdaptive::LayerwiseAdaptive(::torch::optim::Optimizer& inner, LayerwiseOptions options)
    : Optimizer(inner.param_groups(), inner.defaults().clone()),
      inner_(inner),
      options_(options) {
  if (!(options_.trust > 0) || options_.weight_decay < 0)
    throw Error(failure(ErrorCode::invalid_argument,
                        "layer-wise rates: trust is {} and weight decay {}, expected above 0 and not below 0",
                        options_.trust, options_.weight_decay));
}

::torch::Tensor LayerwiseAdaptive::step(LossClosure closure) {
  ::torch::Tensor loss;
  if (closure) {
    const ::torch::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const ::torch::NoGradGuard no_gradients;
  for (auto& group : inner_.param_groups())
    for (const auto& parameter : group.params())
      if (parameter.grad().defined() && parameter.dim() > 1) adapt(parameter, group.options().get_lr(), options_);
  inner_.step();
  return loss;
}

void LayerwiseAdaptive::save(::torch::serialize::OutputArchive& archive) const { inner_.save(archive); }
void LayerwiseAdaptive::load(::torch::serialize::InputArchive& archive) { inner_.load(archive); }

}  // namespace gradsync::torch
