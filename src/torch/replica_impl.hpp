// The state of a Replica. Its methods are in replica.cpp (life, forward), replica_backward.cpp (from the first
// gradient to the end of backward) and replica_step.cpp (optimiser steps that are put off).
#pragma once

#include <exception>
#include <optional>
#include <unordered_map>
#include <vector>

#include "gradsync/torch/distributed_data_parallel.hpp"
#include "torch/deferred_steps.hpp"
#include "torch/gradients.hpp"
#include "torch/model.hpp"
#include "torch/read_watch.hpp"

namespace gradsync::torch {

struct Replica::Impl {
  Impl(std::shared_ptr<::torch::nn::Module> module, Communicator& comm, DistributedDataParallelOptions options);
  ~Impl();

  std::shared_ptr<::torch::nn::Module> module;
  Communicator* comm;
  DistributedDataParallelOptions options;
  Communicator own;  // checks, parameters and buffers: nothing of the user's interleaves

  std::vector<ModelParameter> parameters;  // as they were wrapped
  std::optional<GradientSync> sync;        // of the trained ones
  std::optional<Gradients> gradients;      // after sync: views of its memory go first
  std::uint64_t generation = 0;

  // Forward.
  bool begun = false;                    // sync.begin_step() was called, finish() not
  std::optional<std::uint64_t> samples;  // set and not yet handed on
  std::vector<bool> reached;             // by the outputs since the last exchange; empty: not known

  // Backward.
  std::weak_ptr<int> pass;        // lives as long as the backward pass that is to call finish()
  std::vector<bool> arrived;      // in this pass
  std::vector<bool> kept_sparse;  // in a pass that sent nothing
  Status fault;                   // the first of this rank's own in this pass
  bool accompanied = false;

  // Overlap::backward_forward, between finish() and the last update.
  bool forwarding = false;
  DeferredSteps deferred;
  std::vector<bool> outstanding;  // updates put off
  std::size_t outstanding_total = 0;
  std::unordered_map<const void*, std::vector<std::size_t>> by_storage;  // of parameters and of gradient views
  std::unordered_map<const void*, std::size_t> by_identity;              // of parameters
  std::exception_ptr error;  // kept in the midst of an operation, thrown by the next call
  ReadWatch watch;

  // replica.cpp
  void wrap();
  void unwrap();
  void check_model();
  void before_forward();
  void after_forward(const std::vector<::torch::Tensor>& outputs);
  void begin_step();
  void hand_on_samples();
  void zero_grad();
  bool accompany();

  // replica_backward.cpp
  void on_arrival(std::size_t i) noexcept;
  void begin_pass();
  void mark_unreached();
  void mark_ready(std::size_t i);
  void end_pass();
  void complete_pass();
  void adopt_results();
  void adopt_result(std::size_t i);

  // replica_step.cpp
  void begin_forwarding();
  void step(::torch::optim::Optimizer& optimizer);
  void index_storages();
  void on_read(const ::torch::Tensor& tensor) noexcept;
  void on_read_of(std::size_t i);
  void apply_with(std::size_t i);
  void apply(const std::vector<bool>& wanted);
  // `adopt`: gradients that nobody stepped become the parameters' .grad(), also where this rank had none. Not by
  // itself: the user may have dropped them.
  void synchronize(bool adopt = false);
  void end_forwarding();
  void rethrow();
};

}  // namespace gradsync::torch
