// From the first gradient to the end of backward.
#include <torch/csrc/autograd/engine.h>

#include "base/status.hpp"
#include "torch/agreement.hpp"
#include "torch/replica_impl.hpp"

namespace gradsync::torch {

// A failure here is this rank's own. Its gradient is left out, so that finish() fails, and with it every rank's.
void Replica::Impl::on_arrival(std::size_t i) noexcept {
  const Status status = status_of(
      [&] {
        if (pass.expired()) begin_pass();
        arrived[i] = true;
        mark_ready(i);
      },
      ErrorCode::internal, "gradient");
  if (fault.ok()) fault = status;
}

// The engine calls back at the end of this pass; should the pass be broken off, `pass` expires with it.
void Replica::Impl::begin_pass() {
  auto token = std::make_shared<int>(0);
  pass = token;
  arrived.assign(gradients->size(), false);
  fault = {};
  ::torch::autograd::Engine::get_default_engine().queue_callback([this, token] { end_pass(); });
  synchronize();
  begin_step();
  sync->begin_backward();
  if (!reached.empty() && sync->synchronising()) mark_unreached();
}

// Those that no output depends on: known before their bucket waits for them. A gradient that is there already, from
// passes before, counts.
void Replica::Impl::mark_unreached() {
  for (std::size_t i = 0; i < gradients->size(); ++i) {
    if (reached[i] || arrived[i]) continue;
    arrived[i] = true;
    if (gradients->defined(i)) mark_ready(i);
    else sync->unused(i);
  }
}

void Replica::Impl::mark_ready(std::size_t i) {
  if (!gradients->parameter(i).sparse) {
    throw_if_failed(gradients->place(i));
    return sync->ready(i);
  }
  if (!sync->synchronising()) {  // autograd adds them up
    kept_sparse[i] = true;
    return;
  }
  SparseRows rows;
  throw_if_failed(gradients->rows_of(i, rows));
  kept_sparse[i] = false;
  sync->ready_sparse(i, std::move(rows));
}

void Replica::Impl::end_pass() {
  const Status status = status_of([&] { complete_pass(); }, ErrorCode::internal, "end of backward");
  pass.reset();
  begun = false;
  if (sync->synchronising()) reached.clear();
  throw_if_failed(fault);
  throw_if_failed(status);
}

void Replica::Impl::complete_pass() {
  if (sync->synchronising())
    for (std::size_t i = 0; i < gradients->size(); ++i)
      if (!arrived[i] && gradients->defined(i) && (options.sync.find_unused || kept_sparse[i])) mark_ready(i);
  sync->finish();
  if (!sync->synchronising()) return;
  if (sync->overlaps_forward()) begin_forwarding();
  else adopt_results();
}

void Replica::Impl::adopt_results() {
  for (std::size_t i = 0; i < gradients->size(); ++i) adopt_result(i);
}

// Of a parameter that no rank used, the gradient stays as it is.
void Replica::Impl::adopt_result(std::size_t i) {
  if (!sync->used(i)) return;
  if (gradients->parameter(i).sparse) gradients->adopt(i, sync->sparse_gradient(i));
  else gradients->adopt(i);
}

}  // namespace gradsync::torch
