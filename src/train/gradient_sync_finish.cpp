// After backward: what is left is sent, all arrives, and the sums that travelled with it are judged.
#include <utility>

#include "base/status.hpp"
#include "train/gradient_sync_impl.hpp"

namespace gradsync {

bool GradientSync::Impl::accompany() {
  if (!options.weighted)
    throw Error(failure(ErrorCode::invalid_argument, "accompany: the mean is over ranks, the option weighted is off"));
  if (!synchronising)
    throw Error(failure(ErrorCode::invalid_argument, "accompany: synchronising is off, nothing is sent"));
  begin_step();
  begin_marking();
  run_out = true;
  set_samples(0);
  finish();
  wait_all();
  return sums.ranks_run_out < world;
}

void GradientSync::Impl::finish() {
  check_usable();
  throw_late();
  std::unique_lock lock(mutex);
  begin_marking();
  if (!synchronising) {
    open = false;
    if (!note.failed.ok()) throw Error(std::exchange(note.failed, {}));
    return;
  }
  recording.backward_end_s = now_s();
  if (recording.backward_begin_s == 0) recording.backward_begin_s = recording.backward_end_s;
  close_readiness();
  lock.unlock();
  if (!broken.ok()) fail_for_good(broken);
  if (route.halves) finish_forward();
  else finish_backward();
}

void GradientSync::Impl::throw_late() {
  if (!late.ok()) throw Error(std::exchange(late, {}));
}

// What was not ready counts as zero on this rank, or is missed.
void GradientSync::Impl::close_readiness() {
  const bool may_lack = options.find_unused || run_out || (weights.is_set() && weights.nothing());
  for (std::uint32_t p = 0; p < parameters.size(); ++p) {
    if (readiness.marked(p)) continue;
    const bool accumulated = readiness.accumulated(p);
    if (!accumulated && !may_lack) {
      ++note.missing_total;
      note.missing.push_back(p);
    }
    mark(p, false);
  }
  launch_due();
}

void GradientSync::Impl::finish_backward() {
  {
    const Stopwatch waiting(recording.waited_s);
    wait_for_all();
  }
  sums = {};
  for (std::uint32_t k = 0; k < layout.items.size(); ++k)
    if (layout.items[k].sparse) read_sparse_heads(layout.items[k].index);
    else read_header_of(k);
  check_sums();
  for (std::uint32_t k = 0; k < layout.items.size(); ++k) settle(k);
  recording.finish_s = now_s();
  record_timeline();
}

void GradientSync::Impl::wait_for_all() {
  for (std::uint32_t k = 0; k < layout.items.size(); ++k) {
    if (layout.items[k].sparse) continue;
    if (const Status status = finish_flight(route, flights[k]); !status.ok()) fail_for_good(status);
  }
  for (std::uint32_t k = 0; k < layout.items.size(); ++k)
    if (layout.items[k].sparse) receive_sparse(layout.items[k].index);
}

void GradientSync::Impl::read_header_of(std::uint32_t item) {
  const PlannedBucket& bucket = bucket_of(item);
  if (bucket.header_elements == 0) return;
  const HeaderShape shape{bucket.dtype, world, static_cast<std::uint32_t>(bucket.begun.size())};
  const HeaderSums header = gradsync::read_header(shape, arena.of(bucket).data, true);
  StepSums found{header.samples,          header.ranks_run_out,
                 header.ranks_not_finite, header.ranks_order_differs,
                 header.ranks_failed,     false};
  for (std::size_t i = 0; i < bucket.begun.size(); ++i) {
    used[bucket.begun[i]] = header.used[i] > 0;
    found.missing = found.missing || (!options.find_unused && header.used[i] + header.ranks_run_out < world);
  }
  if (!route.halves) merge(sums, found);
}

// Throws, the same on every rank, what one of them has to tell. The step is void then, and the next one may begin.
void GradientSync::Impl::check_sums() {
  Status verdict;
  if (sums.ranks_failed > 0 || sums.missing || sums.ranks_not_finite > 0) {
    try {
      verdict = verdict_of(exchange_notes(lanes.control(), rank, world, note), blame());
    } catch (const Error& error) { fail_for_good(error.status()); }
    if (verdict.ok())
      verdict =
          failure(ErrorCode::internal, "step {}: the ranks' headers speak of a failure that no rank knows", sends + 1);
  } else if (!note.failed.ok()) {
    fail_for_good(note.failed);  // it came when all had left: the others learn of it by the lanes' end
  } else if (weights.on() && sums.samples == 0 && !layout.items.empty() && sums.ranks_run_out < world) {
    verdict = failure(ErrorCode::invalid_argument, "step {}: all ranks together have 0 samples, so there is no mean",
                      sends + 1);
  }
  end_step();
  if (verdict.ok()) return;
  abandon();
  throw Error(verdict);
}

// Nothing of a step that failed is used; operations still under way end before the next begins.
void GradientSync::Impl::abandon() {
  for (std::uint32_t k = 0; k < layout.items.size(); ++k) {
    if (layout.items[k].sparse) receive_sparse(layout.items[k].index);
    else if (const Status status = finish_flight(route, flights[k]); !status.ok()) fail_for_good(status);
    settled[k] = true;
  }
  sparse.forget();
  forwarding = false;
}

void GradientSync::Impl::end_step() {
  observe();
  open = false;
  ++sends;
  readiness.end_step();
  weights.end_step(sums.samples);
}

void GradientSync::Impl::fail_for_good(const Status& cause) {
  if (broken.ok()) broken = lanes.end(cause);
  open = forwarding = false;
  throw Error(broken);
}

void GradientSync::Impl::record_timeline() {
  recording.buckets.clear();
  for (std::uint32_t k = 0; k < layout.items.size(); ++k) {
    if (layout.items[k].sparse) continue;
    const PlannedBucket& bucket = bucket_of(k);
    const Flight& flight = flights[k];
    recording.buckets.push_back({k, bucket.count * size_of(bucket.dtype), readiness.item_ready_s(k),
                                 at_s(flight.launched), at_s(flight.reduced), at_s(flight.done)});
  }
  timeline = recording;
}

}  // namespace gradsync
