#include "train/plan_units.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"
#include "train/header.hpp"

namespace gradsync {
namespace {

std::uint64_t up(std::uint64_t value, std::uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

double sane(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

std::uint64_t padded_bytes(const Parameter& parameter) {
  return up(parameter.elements() * size_of(parameter.dtype), plan_alignment_bytes);
}

// Without measured times: gradients come at an even pace, and backward takes as long as sending all of it.
std::vector<double> assumed_times(const PlanQuery& query) {
  double total = 0, sent = 0;
  for (const std::uint32_t p : query.order) total += static_cast<double>(padded_bytes(query.parameters[p]));
  const double all_s = sane(query.cost.latency_s) + sane(query.cost.seconds_per_byte) * total;
  const double backward_s = query.backward_s > 0 ? sane(query.backward_s) : all_s;
  std::vector<double> times(query.parameters.size());
  for (const std::uint32_t p : query.order) {
    sent += static_cast<double>(padded_bytes(query.parameters[p]));
    times[p] = total > 0 ? backward_s * (sent / total) : backward_s;
  }
  return times;
}

std::uint64_t bucket_limit(const PlanQuery& query) {
  if (query.bucket_bytes != 0) return query.bucket_bytes;
  const double slow = sane(query.cost.latency_s) / std::max(sane(query.cost.seconds_per_byte), 1e-15);
  const double bytes = std::min(slow / planned_latency_share, 1e15);
  return std::max(planned_bucket_bytes_max, static_cast<std::uint64_t>(bytes));
}

// Bytes of a parameter's parts, but for the last: as few of equal size as fit a bucket.
std::uint64_t part_bytes(const PlanUnits& all, std::uint64_t header, std::uint64_t bytes) {
  if (header + bytes <= all.bucket_bytes || bytes <= plan_alignment_bytes) return bytes;
  const std::uint64_t room = all.bucket_bytes > header ? all.bucket_bytes - header : 0;
  const std::uint64_t most = std::max(room / plan_alignment_bytes, std::uint64_t{1}) * plan_alignment_bytes;
  const std::uint64_t parts = up(bytes, most) / most;
  return up(up(bytes, parts) / parts, plan_alignment_bytes);
}

void add_units(PlanUnits& all, const Parameter& parameter, PlanUnit unit) {
  const std::uint64_t size = size_of(parameter.dtype), elements = parameter.elements(), bytes = padded_bytes(parameter);
  const std::uint64_t part = part_bytes(all, all.headers.of(parameter.dtype, 1), bytes);
  for (std::uint64_t begin = 0; begin == 0 || begin < bytes; begin += part) {
    unit.begins = begin == 0;
    unit.ends = begin + part >= bytes;
    unit.bytes = unit.ends ? bytes - begin : part;
    unit.first = begin / size;
    unit.count = unit.ends ? elements - unit.first : part / size;
    all.units.push_back(unit);
    if (unit.ends) return;
  }
}

}  // namespace

HeaderBytes::HeaderBytes(std::uint32_t world) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const HeaderShape shape{dtype, world, 0};
    const std::uint64_t each = shape.groups() * size_of(dtype);
    by_dtype_[static_cast<std::size_t>(dtype)] = {each * shape.group_elements(), each};
  }
}

std::uint64_t HeaderBytes::of(DType dtype, std::uint32_t begun) const {
  if (begun == 0) return 0;
  const Affine& header = by_dtype_[static_cast<std::size_t>(dtype)];
  return up(header.fixed + header.each * begun, plan_alignment_bytes);
}

bool PlanRun::takes(const PlanUnits& all, const PlanUnit& unit, bool in_front) const {
  if (units == 0) return true;
  const bool joins = in_front ? unit.begins && unit.ends && front_begins : unit.begins && front_begins && back_ends;
  if (!joins) return false;
  const std::uint64_t grown = all.headers.of(unit.dtype, begun + 1) - all.headers.of(unit.dtype, begun);
  return bytes + unit.bytes + grown <= all.bucket_bytes;
}

void PlanRun::take(const PlanUnits& all, const PlanUnit& unit, bool in_front) {
  if (in_front || units == 0) front_begins = unit.begins;
  if (!in_front || units == 0) back_ends = unit.ends;
  const std::uint32_t before = begun;
  begun += unit.begins ? 1 : 0;
  bytes += unit.bytes + all.headers.of(unit.dtype, begun) - all.headers.of(unit.dtype, before);
  ++units;
}

std::vector<double> ready_times(const PlanQuery& query) {
  if (query.ready_s.empty()) return assumed_times(query);
  GRADSYNC_CHECK(query.ready_s.size() == query.parameters.size());
  std::vector<double> times;
  for (const double time : query.ready_s) times.push_back(sane(time));
  return times;
}

PlanUnits plan_units(const PlanQuery& query) {
  PlanUnits all{{},
                HeaderBytes(query.world),
                bucket_limit(query),
                {sane(query.cost.latency_s), sane(query.cost.seconds_per_byte)}};
  const std::vector<double> times = ready_times(query);
  PlanUnit unit;
  for (const std::uint32_t p : query.order) {
    GRADSYNC_CHECK(p < query.parameters.size() && !query.parameters[p].sparse);
    unit.parameter = p;
    unit.dtype = query.parameters[p].dtype;
    unit.ready_s = std::max(unit.ready_s, times[p]);
    add_units(all, query.parameters[p], unit);
  }
  return all;
}

}  // namespace gradsync
