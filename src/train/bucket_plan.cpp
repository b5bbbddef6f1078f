#include "train/bucket_plan.hpp"

#include <algorithm>

#include "base/float_mode.hpp"
#include "base/status.hpp"
#include "train/header.hpp"
#include "train/plan_search.hpp"

namespace gradsync {
namespace {

// Lays buckets one after another in the arena of their dtype.
class Layer {
 public:
  Layer(const PlanQuery& query, const PlanUnits& all) : query_(query), all_(all) {
    plan_.places.resize(query.parameters.size());
    plan_.arena_elements.resize(kDTypeCount);
  }

  void add(const std::vector<std::uint32_t>& group) {
    PlannedBucket bucket;
    bucket.dtype = all_.units[group.front()].dtype;
    std::uint64_t& end = plan_.arena_elements[static_cast<std::size_t>(bucket.dtype)];
    bucket.begin = end;
    for (const std::uint32_t u : group)
      if (all_.units[u].begins) bucket.begun.push_back(all_.units[u].parameter);
    if (!bucket.begun.empty())
      bucket.header_elements =
          HeaderShape{bucket.dtype, query_.world, static_cast<std::uint32_t>(bucket.begun.size())}.elements();
    end += bucket.header_elements;
    for (const std::uint32_t u : group) end += place(all_.units[u], bucket, end);
    bucket.count = end - bucket.begin;
    plan_.buckets.push_back(std::move(bucket));
  }
  BucketPlan done() { return std::move(plan_); }

 private:
  // Returns how many elements of the arena the unit takes.
  std::uint64_t place(const PlanUnit& unit, PlannedBucket& bucket, std::uint64_t at) {
    const auto index = static_cast<std::uint32_t>(plan_.buckets.size());
    PlannedPlace& place = plan_.places[unit.parameter];
    if (unit.begins) place = {unit.dtype, at, index, index};
    GRADSYNC_CHECK(place.begin + unit.first == at);
    place.last_bucket = index;
    bucket.pieces.push_back({unit.parameter, unit.first, unit.count});
    return unit.bytes / size_of(unit.dtype);
  }

  const PlanQuery& query_;
  const PlanUnits& all_;
  BucketPlan plan_;
};

[[gnu::noinline]] BucketPlan plan_in_mode(const PlanQuery& query) {
  const PlanUnits all = plan_units(query);
  Layer layer(query, all);
  for (const std::vector<std::uint32_t>& group : query.bucket_bytes != 0 ? fill_buckets(all) : search_buckets(all))
    layer.add(group);
  return layer.done();
}

[[gnu::noinline]] double completion_in_mode(const PlanQuery& query, const BucketPlan& plan) {
  const std::vector<double> times = ready_times(query);
  double wire_s = 0;
  for (const PlannedBucket& bucket : plan.buckets) {
    for (const BucketPiece& piece : bucket.pieces) wire_s = std::max(wire_s, times[piece.parameter]);
    const auto bytes = static_cast<double>(bucket.count * size_of(bucket.dtype));
    wire_s += query.cost.latency_s + query.cost.seconds_per_byte * bytes;
  }
  return wire_s;
}

}  // namespace

BucketPlan plan_buckets(const PlanQuery& query) {
  const DefaultFloatMode mode;
  return plan_in_mode(query);
}

double completion_s(const PlanQuery& query, const BucketPlan& plan) {
  const DefaultFloatMode mode;
  return completion_in_mode(query, plan);
}

}  // namespace gradsync
