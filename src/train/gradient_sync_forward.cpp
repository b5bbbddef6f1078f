// Overlap::backward_forward: the second half of each bucket's exchange runs under the next forward pass, in the order in
// which forward needs it. Whoever waits for a parameter waits for its buckets only.
#include <algorithm>

#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "train/gradient_sync_impl.hpp"

namespace gradsync {

// What the buckets' headers would tell only when all are there is summed up beside them, so that nobody uses a gradient of
// a step that has failed.
void GradientSync::Impl::finish_forward() {
  totals = {static_cast<std::int64_t>(weights.samples()),
            run_out,
            note.not_finite >= 0,
            readiness.order_differs(),
            !note.failed.ok(),
            note.missing_total > 0};
  try {
    for (std::uint32_t k = static_cast<std::uint32_t>(layout.items.size()); k-- > 0;)
      if (!layout.items[k].sparse) launch_gather(route, cargo_of(k), flights[k]);
    totals_work = lanes.control().all_reduce_async(view(totals), ReduceOp::sum);
  } catch (const Error& error) { fail_for_good(error.status()); }
  open = false;
  forwarding = true;
  recording.finish_s = now_s();
}

void GradientSync::Impl::receive_sums() {
  if (!totals_work.valid()) return;
  try {
    totals_work.wait();
  } catch (const Error& error) { fail_for_good(error.status()); }
  totals_work = {};
  const auto ranks = [&](std::size_t at) { return static_cast<std::uint32_t>(totals[at]); };
  sums = {static_cast<std::uint64_t>(totals[0]), ranks(1), ranks(2), ranks(3), ranks(4), totals[5] > 0};
  check_sums();
}

void GradientSync::Impl::settle(std::uint32_t item) {
  if (settled[item]) return;
  if (layout.items[item].sparse) {
    settle_sparse(layout.items[item].index);
  } else {
    if (const Status status = finish_flight(route, flights[item]); !status.ok()) fail_for_good(status);
    flights[item].hooked.reset();
    if (route.halves) read_header_of(item);
  }
  for (const double factor : factors_of(item)) scale_item(item, factor);
  settled[item] = true;
}

void GradientSync::Impl::wait(std::uint32_t parameter) {
  check_usable();
  if (!forwarding) return;
  {
    const Stopwatch waiting(recording.waited_s);
    push_sparse();
    receive_sums();
    for (std::uint32_t k : layout.held_by[parameter]) settle(k);
  }
  if (std::find(settled.begin(), settled.end(), false) == settled.end()) close_forward();
}

void GradientSync::Impl::wait_all() {
  if (!forwarding) return;
  {
    const Stopwatch waiting(recording.waited_s);
    receive_sums();
    for (std::uint32_t k = static_cast<std::uint32_t>(layout.items.size()); k-- > 0;) settle(k);
  }
  close_forward();
}

void GradientSync::Impl::close_forward() {
  forwarding = false;
  record_timeline();
}

bool GradientSync::Impl::complete(std::uint32_t parameter) {
  check_usable();
  if (open && readiness.any_marked()) return false;
  const auto& held_by = layout.held_by[parameter];
  const auto is_settled = [&](std::uint32_t k) { return settled[k]; };
  if (!forwarding || std::all_of(held_by.begin(), held_by.end(), is_settled))
    return std::all_of(held_by.begin(), held_by.end(), is_settled);
  push_sparse();
  if (!totals_work.done()) return false;
  for (std::uint32_t k : held_by)
    if (!settled[k] && !(layout.items[k].sparse ? sparse.received(layout.items[k].index) : is_done(flights[k])))
      return false;
  wait(parameter);
  return true;
}

}  // namespace gradsync
