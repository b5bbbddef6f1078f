// Keeps the gradients of a model's replicas in step: buckets sent while backward still runs, no copy, no barrier needed.
//
//   std::vector<gradsync::Parameter> parameters = {{"weight", {512, 256}}, {"bias", {512}}};   // the same on every rank
//   gradsync::GradientSync sync(comm, parameters);
//   for (…) {
//     sync.begin_step();                          // before forward
//     …                                           // backward, from the last layer to the first:
//     compute_bias(sync.gradient(1).data);        //   write (or add) a gradient where it lives …
//     sync.ready(1);                              //   … and say so: a full bucket leaves at once
//     compute_weight(sync.gradient(0).data);
//     sync.ready(0);
//     sync.finish();                              // all gradients are now the mean over the ranks
//     optimiser();
//   }
//
// Gradients are views into buckets; a bucket is one message. Buckets follow the order in which gradients become ready,
// agreed between the ranks and planned anew when it changes, and their sizes the measured cost of a message
// (Shi et al., MG-WFBP, 2019). One thread at a time uses a GradientSync; `ready` may be called from a thread other than
// the one that waits. Everything throws gradsync::Error; a failure in a bucket reaches the caller at `finish` (or `wait`),
// never half-applied: the optimiser has not seen it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync {

// One tensor of the model. `shape` may be empty (a scalar). A sparse parameter's gradient is a list of rows of
// shape[0]; it has no memory in a bucket.
struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;  // of the gradient: f16, bf16, f32 or f64
  bool sparse = false;

  std::size_t elements() const;
};

// What a message of n bytes costs this communicator: latency_s + n * seconds_per_byte.
struct MessageCost {
  double latency_s = 0, seconds_per_byte = 0;
};

// Rows of a sparse gradient: values[k * row_elements …] belong to row rows[k] of the parameter. After `finish` rows are
// sorted and unique.
struct SparseRows {
  std::vector<std::int64_t> rows;
  std::vector<std::byte> values;  // rows.size() * row elements, of the parameter's dtype
};

// A bucket as a hook sees it.
struct GradientBucket {
  std::uint32_t index = 0;  // in the order of launching
  View gradients;           // this rank's sum, to be replaced by the mean over all ranks
  std::vector<std::uint32_t> parameters;
  Communicator* communicator =
      nullptr;  // whose operations are those of buckets only; all ranks launch in the same order
  bool last = false;
};
// What a hook has begun. `wait` returns when `gradients` holds the result, and throws what went wrong. Operations on the
// bucket's communicator are begun by the hook or by `wait`, which are called in the same order on every rank; `done` is not.
class BucketExchange {
 public:
  virtual ~BucketExchange() = default;
  virtual bool done() = 0;  // never blocks; may push on what was begun
  virtual void wait() = 0;
};
// Replaces the exchange of each dense bucket. Called once a bucket and step, in the same order on every rank.
using BucketHook = std::function<std::unique_ptr<BucketExchange>(const GradientBucket&)>;

enum class Overlap : std::uint8_t {
  backward,          // finish() returns when every gradient is complete: a barrier before the optimiser
  backward_forward,  // reduce-scatter under backward, all-gather under the next forward; see GradientSync::wait
};

struct GradientSyncOptions {
  // Bytes of a bucket, at most; a larger parameter is split. 0: planned from measured cost and ready times.
  std::size_t bucket_bytes = 0;
  std::uint32_t lanes = 2;  // buckets under way at the same time, 1 to 8
  Overlap overlap = Overlap::backward;
  // With Overlap::backward_forward: begin with the barrier, try both ways where something is left to hide, and keep the faster
  // one; agreed by all ranks within the first 17 steps.
  bool overlap_only_if_worth_it = true;
  // Gradients have the same bits for any bucket_bytes and lanes (sums in the order of the ranks).
  bool deterministic = false;
  // A parameter that is not `ready` at `finish` counts as zero on this rank. Off: finish() fails on every rank, naming it.
  bool find_unused = false;
  // Look for NaN and infinity in every gradient before it is sent: finish() then fails on every rank with not_finite,
  // naming parameter and rank. Costs one reading pass.
  bool check_finite = false;
  // The mean is over samples (set_samples) instead of ranks.
  bool weighted = false;
  // Re-plan when the order in which gradients become ready changes.
  bool replan = true;
  BucketHook hook = {};
};

// When what happened in one step, in seconds since begin_step().
struct StepTimeline {
  struct Bucket {
    std::uint32_t index = 0;
    std::size_t bytes = 0;
    double ready_s = 0;                // its last gradient
    double launched_s = 0;             // handed to the communicator
    double reduced_s = 0, done_s = 0;  // reduce-scatter done (backward_forward only, else 0); result complete
  };
  std::uint64_t step = 0;       // passes begun on this rank, those that sent nothing included
  double backward_begin_s = 0;  // begin_backward(), or the first ready()
  double backward_end_s = 0;    // finish() was called
  double finish_s = 0;          // finish() returned
  double waited_s = 0;          // in finish() and wait(): communication that was not hidden
  std::vector<Bucket> buckets;
  double communication_s() const;  // time during which at least one bucket was under way
  double hidden_share() const;     // of communication_s, 0 to 1
};

class GradientSync {
 public:
  // Collective. Checks that every rank has the same parameters (mismatch names two ranks, both counts and the first
  // parameter that differs), measures the cost of a message, and allocates the gradients, zeroed. `comm` is borrowed.
  GradientSync(Communicator& comm, std::vector<Parameter> parameters, GradientSyncOptions options = {});
  ~GradientSync();
  GradientSync(GradientSync&&) noexcept;
  GradientSync& operator=(GradientSync&&) noexcept;

  const std::vector<Parameter>& parameters() const;
  // Where the dense gradient of a parameter lives: contiguous, 64-byte aligned, valid until `generation` changes.
  View gradient(std::size_t parameter) const;
  // Grows when begin_step() has moved the gradients (a new plan). Their values move along.
  std::uint64_t generation() const;

  // Before forward. Brings a new plan into force where one was agreed. With Overlap::backward_forward it does not wait for
  // the gradients of the step before, except for a new plan, but throws what went wrong there. All ranks call it in the same
  // steps, or none ever does: now and then it agrees on a plan with the others.
  void begin_step();
  void begin_backward();  // optional: only for the timeline and the planner

  // Samples behind this rank's gradient of this step (weighted only): the result is sum(samples * gradient) /
  // sum(samples). 0: this rank's gradient counts as zero whatever it holds. Before the first ready() of the step. Those of
  // passes that do not synchronise are added to the next one that does. Below 2^40.
  void set_samples(std::uint64_t samples);

  // The gradient of this step is in its memory. Twice in a step is an error; it and every other failure is thrown by finish.
  void ready(std::size_t parameter) noexcept;
  void ready_sparse(std::size_t parameter, SparseRows rows) noexcept;
  // This step will not touch the parameter; sooner than finish() would find out. Only with find_unused.
  void unused(std::size_t parameter) noexcept;

  // Until synchronised again, ready() and finish() send nothing and gradients stay local, to be added to. What was ready
  // in such a backward pass counts as used in the next one that sends.
  void set_synchronising(bool on);
  bool synchronising() const;

  // After backward. Overlap::backward: returns when every gradient is complete. Overlap::backward_forward: returns at once;
  // wait() for a parameter before it is used, and then, or at the next begin_step(), comes what finish() would have thrown.
  //
  // What every rank knows to be wrong with a step (a gradient missing or not finite, ready() twice, no samples) makes that
  // step void on every rank, and the next one may begin. Any other failure is for good: later calls throw the same.
  void finish();
  // Returns when this parameter's gradient is complete; at once if it is.
  void wait(std::size_t parameter);
  void wait_all();
  // Whether wait() would return at once; throws what it would throw.
  bool complete(std::size_t parameter) const;
  // Whether the overlap with forward is in force (see overlap_only_if_worth_it).
  bool overlaps_forward() const;

  // A step of a rank that has no more samples: takes part with nothing, so that the others can go on. True: gradients are
  // complete as after finish() and wait_all(), apply them as the others do. False: every rank has run out. Weighted only.
  bool accompany();

  // After finish() (and wait() for it): whether any rank had a gradient for it. Those of no rank are zero.
  bool used(std::size_t parameter) const;
  const SparseRows& sparse_gradient(std::size_t parameter) const;  // likewise
  std::uint64_t total_samples() const;                             // of the last step, over all ranks

  // After finish(): scales all gradients so that their global 2-norm is at most `norm_max`; returns the norm before.
  // Computed in f64 in an order that depends on the plan only: the same on every rank and in both overlaps. Collective. A
  // norm that is not finite changes nothing.
  double clip_norm(double norm_max);

  MessageCost cost() const;
  std::uint32_t bucket_count() const;
  std::uint64_t replans() const;
  const StepTimeline& timeline() const;  // of the last step that sent

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradsync
