// Backward: gradients become ready, and buckets leave in the order of the plan.
#include <cstring>

#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "train/gradient_sync_impl.hpp"

namespace gradsync {
namespace {

void zero(const View& view) {
  if (view.count > 0) std::memset(view.data, 0, view.count * size_of(view.dtype));
}

View after(const View& view, std::uint64_t elements) {
  return {static_cast<std::byte*>(view.data) + elements * size_of(view.dtype), view.count - elements, view.dtype};
}

}  // namespace

// What the last step left under way goes on under this one's forward pass, unless gradients are to move.
void GradientSync::Impl::begin_step() {
  check_usable();
  throw_late();
  if (open && readiness.next() > 0)
    throw Error(failure(ErrorCode::invalid_argument,
                        "begin_step: step {} has sent gradients already, finish() it first", step));
  if (forwarding) receive_sums();
  if (exchange_is_due()) {
    wait_all();
    exchange();
  }
  coming.begun = true;
  coming.at = time_now();
  trial.step_begins(sends, coming.at);
  if (trial.due()) {
    wait_all();
    try_other_overlap();
  }
  if (!forwarding) open_step();
}

void GradientSync::Impl::open_step() {
  ++step;
  begun = coming.begun ? coming.at : time_now();
  open = true;
  run_out = false;
  note = {};
  readiness.begin_step();
  weights.begin_step();
  sparse.end_step();
  clip_factors.clear();
  recording = {};
  recording.step = step;
  const std::optional<std::uint64_t> samples = coming.samples;
  coming = {};
  if (samples) take_samples(*samples);
}

void GradientSync::Impl::set_synchronising(bool on) {
  if (on == synchronising) return;
  if (open && readiness.next() > 0)
    throw Error(failure(ErrorCode::invalid_argument,
                        "set_synchronising: step {} has sent gradients already, finish() it first", step));
  synchronising = on;
}

void GradientSync::Impl::set_samples(std::uint64_t samples) {
  constexpr std::uint64_t samples_end = std::uint64_t{1} << 40;
  check_usable();
  if (!options.weighted)
    throw Error(
        failure(ErrorCode::invalid_argument, "set_samples: the mean is over ranks, the option weighted is off"));
  if (samples >= samples_end)
    throw Error(
        failure(ErrorCode::invalid_argument, "set_samples: {} samples, expected fewer than {}", samples, samples_end));
  if (!forwarding) begin_marking();
  if (forwarding ? coming.samples.has_value() : weights.is_set())
    throw Error(failure(ErrorCode::invalid_argument, "set_samples: called twice in step {}", step + (open ? 0 : 1)));
  if (forwarding) coming.samples = samples;
  else take_samples(samples);
}

void GradientSync::Impl::take_samples(std::uint64_t samples) {
  if (synchronising) weights.set(samples, lanes.control());
  else weights.accumulate(samples);
}

// A step that nobody began begins with its first call; one that ended under the last forward pass is over by now.
void GradientSync::Impl::begin_marking() {
  if (forwarding) wait_all();
  if (!open) open_step();
}

// For calls that cannot throw: what the last step still has to say is said by the next call that can.
bool GradientSync::Impl::begun_marking() {
  try {
    begin_marking();
  } catch (const Error& error) {
    late = error.status();
    return false;
  }
  return true;
}

void GradientSync::Impl::ready(std::size_t parameter) {
  if (!begun_marking()) return;
  const std::uint32_t p = index_of(parameter, "ready");
  if (parameters[p].sparse)
    throw Error(failure(ErrorCode::invalid_argument, "ready: parameter {} \"{}\" is sparse, use ready_sparse", p,
                        parameters[p].name));
  if (!synchronising) return readiness.accumulate(p);
  mark(p, true);
  launch_due();
}

void GradientSync::Impl::unused(std::size_t parameter) {
  if (!begun_marking()) return;
  const std::uint32_t p = index_of(parameter, "unused");
  if (!options.find_unused)
    throw Error(failure(ErrorCode::invalid_argument,
                        "unused: parameter {} \"{}\" has no gradient, and the option find_unused is off", p,
                        parameters[p].name));
  if (!synchronising) return;
  mark(p, false);
  launch_due();
}

void GradientSync::Impl::mark(std::uint32_t parameter, bool is_used) {
  const double now = now_s();
  if (recording.backward_begin_s == 0) recording.backward_begin_s = now;
  if (readiness.marked(parameter))
    throw Error(failure(ErrorCode::invalid_argument,
                        "ready: parameter {} \"{}\" was ready or unused before in this step", parameter,
                        parameters[parameter].name));
  const bool has_value = is_used || readiness.accumulated(parameter);
  if (!parameters[parameter].sparse) {
    if (!has_value) zero(memory_of(parameter));
    else look_for_not_finite(parameter, memory_of(parameter));
  }
  readiness.mark(parameter, is_used, now);
}

void GradientSync::Impl::look_for_not_finite(std::uint32_t parameter, const View& values) {
  if (!options.check_finite || note.not_finite >= 0 || weights.nothing()) return;
  const std::size_t at = kernels::first_not_finite(values.dtype, values.data, values.count);
  if (at >= values.count) return;
  note.not_finite = parameter;
  note.at = at;
}

void GradientSync::Impl::fail_here(Status status) {
  if (note.failed.ok()) note.failed = std::move(status);
}

void GradientSync::Impl::launch_due() {
  try {
    if (readiness.may_launch() && readiness.next() == 0 && weights.on()) {
      if (!weights.is_set()) {
        fail_here(failure(ErrorCode::invalid_argument,
                          "no samples for step {}: set_samples() comes before the first ready()", step));
        weights.set(0, lanes.control());
      }
      weights.agree();
    }
    while (readiness.may_launch()) {
      launch_item(readiness.next());
      readiness.launched();
    }
    push_sparse();
  } catch (const Error& error) { broken = lanes.end(error.status()); } catch (const std::exception& error) {
    broken = lanes.end(failure(ErrorCode::internal, "step {}: launching a bucket: {}", step, error.what()));
  }
}

void GradientSync::Impl::launch_item(std::uint32_t item) {
  flights[item] = {};
  settled[item] = false;
  if (layout.items[item].sparse) return launch_sparse(item, layout.items[item].index);
  const Cargo cargo = cargo_of(item);
  prepare(*cargo.bucket, cargo.memory);
  launch(route, cargo, flights[item]);
}

Cargo GradientSync::Impl::cargo_of(std::uint32_t item) {
  const PlannedBucket& bucket = bucket_of(item);
  return {item, &bucket, arena.of(bucket), &lanes.of(item), item + 1 == layout.items.size()};
}

// Weighs this rank's contribution, then writes the header, which counts as it is.
void GradientSync::Impl::prepare(const PlannedBucket& bucket, const View& memory) {
  const View gradients = after(memory, bucket.header_elements);
  const double factor = weights.factor(bucket.dtype);
  if (weights.nothing() || factor == 0) zero(gradients);
  else if (factor != 1) kernels::scale(gradients.dtype, gradients.data, gradients.count, factor);
  if (bucket.header_elements == 0) return;
  const HeaderShape shape{bucket.dtype, world, static_cast<std::uint32_t>(bucket.begun.size())};
  write_header(shape, rank, header_of(bucket), memory.data);
}

HeaderMine GradientSync::Impl::header_of(const PlannedBucket& bucket) const {
  HeaderMine mine;
  mine.samples = weights.samples();
  mine.run_out = run_out;
  mine.not_finite = note.not_finite >= 0;
  mine.order_differs = readiness.order_differs();
  mine.failed = !note.failed.ok();
  for (std::uint32_t parameter : bucket.begun) mine.used.push_back(counts_as_used(parameter));
  return mine;
}

// A rank whose gradient counts as nothing need not have one, so that none is missed.
bool GradientSync::Impl::counts_as_used(std::uint32_t parameter) const {
  return readiness.used(parameter) || (!options.find_unused && weights.nothing() && !run_out);
}

}  // namespace gradsync
