// The state of a GradientSync. Its parts are values and small classes of this folder; the methods are in
// gradient_sync_{setup,step,finish,forward,plan,sparse}.cpp by the moment of a step they belong to.
#pragma once

#include <mutex>
#include <optional>

#include "train/agreement.hpp"
#include "train/arena.hpp"
#include "train/exchange.hpp"
#include "train/header.hpp"
#include "train/items.hpp"
#include "train/lanes.hpp"
#include "train/notes.hpp"
#include "train/overlap_trial.hpp"
#include "train/readiness.hpp"
#include "train/sparse_exchange.hpp"
#include "train/weights.hpp"

namespace gradsync {

struct GradientSync::Impl {
  Impl(Communicator& comm, std::vector<Parameter> parameters, GradientSyncOptions options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Fixed.
  Communicator* comm;
  std::vector<Parameter> parameters;
  GradientSyncOptions options;
  std::uint32_t rank = 0, world = 1;
  MessageCost cost;

  // The plan in force and the memory it lays out. Memory outlives the lanes: operations under way touch it.
  Layout layout;
  Arena arena;
  std::uint64_t generation = 0, replans = 0;
  Weights weights;
  SparseQueue sparse;
  std::array<std::int64_t, 6> totals{};  // of the exchange of sums beside the buckets
  Lanes lanes;

  // The step.
  std::mutex mutex;  // ready() comes from other threads than finish()
  Route route;
  Readiness readiness;
  std::vector<Flight> flights;  // by item
  std::vector<bool> settled;    // by item: the result is there and corrected
  std::vector<bool> used;       // by parameter, of the last step
  std::uint64_t step = 0, sends = 0;
  struct {  // begun while the last one's all-gathers were under way: it opens when they have ended
    bool begun = false;
    TimePoint at{};
    std::optional<std::uint64_t> samples;
  } coming;
  bool open = false;        // begun and not finished
  bool forwarding = false;  // finished, with all-gathers under way
  bool synchronising = true;
  bool run_out = false;              // this rank, in this step
  RankNote note;                     // what this rank has to tell of this step
  StepSums sums;                     // of the last step
  Work totals_work;                  // not valid: the sums are known
  std::vector<double> clip_factors;  // of the last step, for what is not settled yet
  Status late;                       // of the last step, found when this one had begun
  Status broken;                     // why everything later fails
  ExchangeSchedule exchanges;
  OverlapTrial trial;
  Observed observed;  // the last step that sent
  Observed agreed;    // by the last exchange
  TimePoint begun{};
  StepTimeline recording, timeline;

  // setup
  void install(Layout next);
  void rebuild_step_state();
  PlanQuery plan_query() const;
  std::size_t bucket_bytes_of_halves() const;
  double now_s() const { return seconds_between(begun, time_now()); }
  double at_s(TimePoint at) const { return at == TimePoint{} ? 0 : seconds_between(begun, at); }
  void check_usable() const { throw_if_broken(broken); }
  static void throw_if_broken(const Status& status);
  std::uint32_t index_of(std::size_t parameter, const char* where) const;
  View memory_of(std::uint32_t parameter) const;
  const PlannedBucket& bucket_of(std::uint32_t item) const { return layout.plan.buckets[layout.items[item].index]; }
  Blame blame() const;

  // step
  void begin_step();
  void open_step();
  void set_synchronising(bool on);
  void set_samples(std::uint64_t samples);
  void take_samples(std::uint64_t samples);
  void ready(std::size_t parameter);
  void ready_sparse(std::size_t parameter, SparseRows rows);
  void unused(std::size_t parameter);
  void begin_marking();
  bool begun_marking();
  void mark(std::uint32_t parameter, bool is_used);
  void launch_due();
  void launch_item(std::uint32_t item);
  void launch_sparse(std::uint32_t item, std::uint32_t parameter);
  void prepare(const PlannedBucket& bucket, const View& memory);
  HeaderMine header_of(const PlannedBucket& bucket) const;
  bool counts_as_used(std::uint32_t parameter) const;
  void look_for_not_finite(std::uint32_t parameter, const View& values);
  // This rank alone has failed, and everything it still sends says so.
  void fail_here(Status status);
  Cargo cargo_of(std::uint32_t item);
  // Runs body; what it throws is kept for finish().
  template <class Body>
  void guarded(Body&& body) noexcept;

  // finish
  bool accompany();
  void finish();
  void finish_backward();
  void throw_late();
  void close_readiness();
  void wait_for_all();
  void read_sums();
  void read_header_of(std::uint32_t item);
  void check_sums();
  void abandon();
  void end_step();
  void record_timeline();
  [[noreturn]] void fail_for_good(const Status& cause);

  // forward
  void finish_forward();
  void receive_sums();
  void settle(std::uint32_t item);
  void wait(std::uint32_t parameter);
  void wait_all();
  bool complete(std::uint32_t parameter);
  double clip_norm(double norm_max);
  std::vector<double> factors_of(std::uint32_t item) const;
  double squares_of(std::uint32_t item) const;
  double agreed_squares();
  void scale_all(double factor);
  void scale_item(std::uint32_t item, double factor);
  void close_forward();

  // sparse
  void push_sparse();
  void receive_sparse(std::uint32_t parameter);
  void read_sparse_heads(std::uint32_t parameter);
  void settle_sparse(std::uint32_t parameter);
  const SparseRows& sparse_result(std::uint32_t parameter) const;

  // plan
  bool exchange_is_due() const;
  void exchange();
  void try_other_overlap();
  void replan();
  void observe();
};

template <class Body>
void GradientSync::Impl::guarded(Body&& body) noexcept {
  try {
    if (!broken.ok() || !late.ok() || !note.failed.ok()) return;
    body();
  } catch (const Error& error) { fail_here(error.status()); } catch (const std::exception& error) {
    fail_here({ErrorCode::internal, -1, error.what()});
  }
}

}  // namespace gradsync
