#include "torch/deferred_steps.hpp"

#include <algorithm>

#include "gradsync/torch/large_batch.hpp"

namespace gradsync::torch {
namespace {

using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

::torch::optim::Optimizer& holder_of(::torch::optim::Optimizer& optimizer) {
  if (auto* layerwise = dynamic_cast<LayerwiseAdaptive*>(&optimizer)) return holder_of(layerwise->inner());
  return optimizer;
}

// Groups of the wanted parameters only; none if there is none.
Groups wanted_of(const Groups& groups, const std::function<bool(const ::torch::Tensor&)>& wanted) {
  Groups some = groups;
  bool any = false;
  for (auto& group : some) {
    std::erase_if(group.params(), [&](const ::torch::Tensor& parameter) { return !wanted(parameter); });
    any = any || !group.params().empty();
  }
  return any ? some : Groups();
}

// The optimiser has these groups while it lives.
class BorrowedGroups {
 public:
  BorrowedGroups(::torch::optim::Optimizer& optimizer, Groups& groups) : optimizer_(optimizer), groups_(groups) {
    optimizer_.param_groups().swap(groups_);
  }
  ~BorrowedGroups() { optimizer_.param_groups().swap(groups_); }
  BorrowedGroups(const BorrowedGroups&) = delete;
  BorrowedGroups& operator=(const BorrowedGroups&) = delete;

 private:
  ::torch::optim::Optimizer& optimizer_;
  Groups& groups_;
};

}  // namespace

void DeferredSteps::add(::torch::optim::Optimizer& optimizer) {
  ::torch::optim::Optimizer& holder = holder_of(optimizer);
  steps_.push_back({&optimizer, &holder, holder.param_groups()});
}

bool DeferredSteps::has(const ::torch::optim::Optimizer& optimizer) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) { return step.optimizer == &optimizer; });
}

void DeferredSteps::take(const std::function<bool(const ::torch::Tensor&)>& wanted) {
  for (Step& step : steps_) {
    Groups some = wanted_of(step.groups, wanted);
    if (some.empty()) continue;
    const BorrowedGroups borrowed(*step.holder, some);
    step.optimizer->step();
  }
}

}  // namespace gradsync::torch
