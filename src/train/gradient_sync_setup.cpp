// From parameters to memory: checks, the first plan, and what follows from any plan.
#include <algorithm>
#include <numeric>

#include "train/cost.hpp"
#include "train/gradient_sync_impl.hpp"
#include "train/model_check.hpp"
#include "train/plan_units.hpp"
#include "train/settings.hpp"

namespace gradsync {
namespace {

// Layers are registered in the order of the forward pass, and backward goes the other way.
std::vector<std::uint32_t> first_order(std::size_t parameters) {
  std::vector<std::uint32_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), 0u);
  return order;
}

constexpr double kHalvesLatencies = 64;  // a bucket's bytes take this many times its latency
constexpr std::size_t kHalvesBytesMin = std::size_t{1} << 20;

bool has(std::span<const Parameter> parameters, DType dtype) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& p) { return p.dtype == dtype; });
}

bool has_sparse(std::span<const Parameter> parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const Parameter& p) { return p.sparse; });
}

}  // namespace

GradientSync::Impl::Impl(Communicator& communicator, std::vector<Parameter> all, GradientSyncOptions wanted)
    : comm(&communicator),
      parameters(std::move(all)),
      options(std::move(wanted)),
      rank(static_cast<std::uint32_t>(communicator.rank())),
      world(static_cast<std::uint32_t>(communicator.size())),
      lanes(communicator) {
  agree_on_settings(lanes.control(), parameters, options);
  check_same_model(lanes.control(), parameters, "parameters");
  lanes.open(communicator, options.lanes, has_sparse(parameters));
  cost = measure_cost(lanes.of(0));
  weights = Weights({options.weighted, has(parameters, DType::f16), rank, world});
  route = {rank, world, options.deterministic, false, options.hook ? &options.hook : nullptr};
  const bool without_barrier = world > 1 && options.overlap == Overlap::backward_forward;
  route.halves = without_barrier && !options.overlap_only_if_worth_it;
  trial = OverlapTrial(without_barrier && options.overlap_only_if_worth_it);
  used.resize(parameters.size());
  install(make_layout(plan_query(), first_order(parameters.size())));
}

// Whatever is under way ends before the memory goes.
GradientSync::Impl::~Impl() { lanes.destroy(); }

// Forward waits for buckets one after another, and its first layers' come last out of backward and are wanted first: many
// buckets, each just large enough that its latency does not count.
std::size_t GradientSync::Impl::bucket_bytes_of_halves() const {
  if (cost.seconds_per_byte <= 0) return planned_bucket_bytes_max;
  const double bytes = kHalvesLatencies * cost.latency_s / cost.seconds_per_byte;
  return static_cast<std::size_t>(
      std::clamp(bytes, static_cast<double>(kHalvesBytesMin), static_cast<double>(planned_bucket_bytes_max)));
}

PlanQuery GradientSync::Impl::plan_query() const {
  PlanQuery query;
  query.parameters = parameters;
  query.cost = cost;
  query.bucket_bytes = options.bucket_bytes;
  if (route.halves && query.bucket_bytes == 0) query.bucket_bytes = bucket_bytes_of_halves();
  query.world = world;
  return query;
}

void GradientSync::Impl::install(Layout next) {
  if (generation == 0) arena = Arena(*comm, next.plan);
  else move_gradients(*comm, parameters, layout.plan, next.plan, arena);
  layout = std::move(next);
  ++generation;
  rebuild_step_state();
}

void GradientSync::Impl::rebuild_step_state() {
  Readiness fresh(layout.held_by, layout.items.size());
  if (generation > 1)
    for (std::uint32_t p = 0; p < parameters.size(); ++p)
      if (readiness.accumulated(p)) fresh.accumulate(p);
  readiness = std::move(fresh);
  flights.clear();
  flights.resize(layout.items.size());
  settled.assign(layout.items.size(), true);
  sparse.arrange(parameters, layout.items);
}

void GradientSync::Impl::throw_if_broken(const Status& status) { throw_if_failed(status); }

std::uint32_t GradientSync::Impl::index_of(std::size_t parameter, const char* where) const {
  if (parameter >= parameters.size())
    throw Error(failure(ErrorCode::invalid_argument, "{}: parameter {}, but there are {}", where, parameter,
                        parameters.size()));
  return static_cast<std::uint32_t>(parameter);
}

View GradientSync::Impl::memory_of(std::uint32_t parameter) const {
  return arena.of(layout.plan.places[parameter], parameters[parameter].elements());
}

// Steps that sent are counted alike on every rank, whatever passes in between sent nothing.
Blame GradientSync::Impl::blame() const {
  return {parameters, sends + 1, [this](int r) { return comm->describe(r); }};
}

}  // namespace gradsync
