// From one plan to the next: what a step showed, what the ranks make of it together, and what follows.
#include <algorithm>

#include "train/gradient_sync_impl.hpp"

namespace gradsync {
namespace {

bool same_plan(const BucketPlan& a, const BucketPlan& b) {
  const auto same_bucket = [](const PlannedBucket& x, const PlannedBucket& y) {
    return x.dtype == y.dtype && x.begin == y.begin && x.count == y.count && x.begun == y.begun;
  };
  const auto same_place = [](const PlannedPlace& x, const PlannedPlace& y) {
    return x.dtype == y.dtype && x.begin == y.begin && x.first_bucket == y.first_bucket;
  };
  return std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(), same_bucket) &&
         std::equal(a.places.begin(), a.places.end(), b.places.begin(), b.places.end(), same_place);
}

bool same_items(std::span<const Item> a, std::span<const Item> b) {
  const auto same = [](const Item& x, const Item& y) { return x.sparse == y.sparse && x.index == y.index; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

}  // namespace

// Parameters without a gradient keep their places behind the others.
void GradientSync::Impl::observe() {
  observed.order.assign(readiness.order().begin(), readiness.order().end());
  std::vector<bool> seen(parameters.size());
  for (std::uint32_t p : observed.order) seen[p] = true;
  for (std::uint32_t p : layout.order)
    if (!seen[p]) observed.order.push_back(p);
  observed.ready_s.resize(parameters.size());
  for (std::uint32_t p = 0; p < parameters.size(); ++p)
    observed.ready_s[p] = std::max(0.0, readiness.ready_s(p) - recording.backward_begin_s);
  observed.backward_s = recording.backward_end_s - recording.backward_begin_s;
  observed.exposed_s = recording.waited_s;
  observed.step_s = now_s();
  if (run_out) {  // it computed nothing: no order, no time
    observed.order = layout.order;
    std::fill(observed.ready_s.begin(), observed.ready_s.end(), 0.0);
    observed.backward_s = 0;
  }
}

bool GradientSync::Impl::exchange_is_due() const {
  if (world == 1 || !(options.replan || !trial.decided())) return false;
  return exchanges.due(sends, options.replan && sums.ranks_order_differs > 0);
}

void GradientSync::Impl::exchange() {
  agreed = observed;
  try {
    agree(lanes.control(), agreed);
  } catch (const Error& error) { fail_for_good(error.status()); }
  exchanges.done(sends);
  trial.begin(agreed.exposed_s, agreed.step_s);
  if (options.replan) replan();
}

// The way that the next steps go, after some have been timed.
void GradientSync::Impl::try_other_overlap() {
  try {
    route.halves = trial.next(lanes.control());
  } catch (const Error& error) { fail_for_good(error.status()); }
  replan();
}

// For what was agreed last, and the overlap in force.
void GradientSync::Impl::replan() {
  PlanQuery query = plan_query();
  if (options.replan) {
    query.ready_s = agreed.ready_s;
    query.backward_s = agreed.backward_s;
  }
  Layout next = make_layout(query, options.replan ? agreed.order : layout.order);
  if (same_plan(layout.plan, next.plan) && same_items(layout.items, next.items)) return;
  install(std::move(next));
  ++replans;
}

}  // namespace gradsync
