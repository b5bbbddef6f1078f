#include "base/status.hpp"
#include "torch/agreement.hpp"
#include "torch/replica_impl.hpp"
#include "torch/tensors.hpp"
#include "train/model_check.hpp"

namespace gradsync::torch {

Replica::Impl::Impl(std::shared_ptr<::torch::nn::Module> module_, Communicator& comm_,
                    DistributedDataParallelOptions options_)
    : module(std::move(module_)),
      comm(&comm_),
      options(std::move(options_)),
      own(comm_.split(0, comm_.rank())),
      watch([this](const Tensor& tensor) { on_read(tensor); }) {
  wrap();
}

Replica::Impl::~Impl() {
  watch.stop();
  gradients.reset();
}

// All checks come before anything is changed.
void Replica::Impl::check_model() {
  std::vector<Parameter> described, buffers;
  agree(own, status_of(
                 [&] {
                   parameters = model_parameters(*module, options.sparse_parameters);
                   throw_if_failed(check_trainable(parameters));
                   for (const ModelParameter& p : parameters) described.push_back(parameter_of(p.name, p.tensor));
                   buffers = described_buffers(*module);
                 },
                 ErrorCode::internal, "wrap module"));
  check_same_model(own, described, "parameters");
  check_same_model(own, buffers, "buffers");
}

void Replica::Impl::wrap() {
  check_model();
  std::vector<ModelParameter> trained;
  std::vector<Parameter> described;
  std::vector<Tensor> tensors;
  for (const ModelParameter& p : parameters) {
    tensors.push_back(p.tensor);
    if (!p.trained) continue;
    trained.push_back(p);
    described.push_back(parameter_of(p.name, p.tensor));
    described.back().sparse = p.sparse;
  }
  sync.emplace(*comm, std::move(described), options.sync);
  broadcast_tensors(own, tensors, false);
  broadcast_tensors(own, model_buffers(*module), true);
  gradients.emplace(std::move(trained), [this](std::size_t i) { on_arrival(i); });
  gradients->lay_out(*sync);
  generation = sync->generation();
  kept_sparse.assign(gradients->size(), false);
  outstanding.assign(gradients->size(), false);
}

void Replica::Impl::unwrap() {
  synchronize();
  watch.stop();
  gradients.reset();
  sync.reset();
  begun = false;
  reached.clear();
  pass.reset();
}

void Replica::Impl::before_forward() {
  rethrow();
  if (!::torch::GradMode::is_enabled() || !module->is_training()) synchronize();
  if (!::torch::GradMode::is_enabled()) return;
  throw_if_failed(check_unchanged(*module, parameters, options.sync.find_unused));
  if (options.broadcast_buffers && module->is_training() && sync->synchronising())
    broadcast_tensors(own, model_buffers(*module), true);
  if (!forwarding) begin_step();  // else it would wait for everything that this forward is to hide
}

void Replica::Impl::after_forward(const std::vector<Tensor>& outputs) {
  synchronize();
  if (!::torch::GradMode::is_enabled()) return;
  begin_step();
  if (sync->overlaps_forward()) watch.start();  // backward hands the thread's watches on as they are when it begins
  else watch.stop();
  if (!options.sync.find_unused || outputs.empty() || !sync->synchronising()) return;
  std::vector<bool> found = gradients->reached_from(outputs);
  if (reached.empty()) reached = std::move(found);
  else
    for (std::size_t i = 0; i < found.size(); ++i) reached[i] = reached[i] || found[i];
}

void Replica::Impl::begin_step() {
  if (begun) return hand_on_samples();
  sync->begin_step();
  begun = true;
  if (sync->generation() != generation) {
    gradients->lay_out(*sync);
    generation = sync->generation();
  }
  hand_on_samples();
}

void Replica::Impl::hand_on_samples() {
  if (!samples || !sync->synchronising()) return;
  sync->set_samples(*samples);
  samples.reset();
}

void Replica::Impl::zero_grad() {
  for (std::size_t i = 0; i < gradients->size(); ++i) gradients->reset(i);
}

bool Replica::Impl::accompany() {
  synchronize();
  if (options.broadcast_buffers && module->is_training()) broadcast_tensors(own, model_buffers(*module), true);
  zero_grad();  // what is left of the last step counts for nothing
  samples.reset();
  const bool others_go_on = sync->accompany();
  begun = false;
  if (sync->generation() != generation) {
    gradients->lay_out(*sync);
    generation = sync->generation();
  }
  if (others_go_on) adopt_results();
  return others_go_on;
}

Replica::Replica(std::shared_ptr<::torch::nn::Module> module, Communicator& comm,
                 DistributedDataParallelOptions options)
    : impl_(std::make_unique<Impl>(std::move(module), comm, std::move(options))) {}
Replica::~Replica() = default;

void Replica::before_forward() { impl_->before_forward(); }
void Replica::after_forward(const std::vector<Tensor>& outputs) { impl_->after_forward(outputs); }
void Replica::zero_grad() { impl_->zero_grad(); }
void Replica::step(::torch::optim::Optimizer& optimizer) { impl_->step(optimizer); }
void Replica::synchronize() { impl_->synchronize(true); }
Replica::NoSync Replica::no_sync() { return NoSync(*this); }

void Replica::set_samples(std::uint64_t samples) {
  impl_->samples = samples;
  if (impl_->begun) impl_->hand_on_samples();
}
bool Replica::accompany() { return impl_->accompany(); }

double Replica::clip_grad_norm(double norm_max) {
  impl_->rethrow();
  return impl_->sync->clip_norm(norm_max);
}

void Replica::rewrap() {
  impl_->unwrap();
  impl_->wrap();
}

GradientSync& Replica::sync() { return *impl_->sync; }
Communicator& Replica::communicator() { return *impl_->comm; }
const std::shared_ptr<::torch::nn::Module>& Replica::module_ptr() const { return impl_->module; }

Replica::NoSync::NoSync(Replica& replica) : replica_(&replica), before_(replica.sync().synchronising()) {
  replica.synchronize();
  replica.sync().set_synchronising(false);
}
Replica::NoSync::~NoSync() {
  try {
    replica_->sync().set_synchronising(before_);
  } catch (const Error&) {  // a backward pass under it was broken off; the next call tells
  }
}

}  // namespace gradsync::torch
