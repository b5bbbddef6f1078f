// The public face: locks where another thread may be, and hands on.
#include "gradsync/gradient_sync.hpp"

#include "base/status.hpp"
#include "train/gradient_sync_impl.hpp"

namespace gradsync {

GradientSync::GradientSync(Communicator& comm, std::vector<Parameter> parameters, GradientSyncOptions options)
    : impl_(std::make_unique<Impl>(comm, std::move(parameters), std::move(options))) {}
GradientSync::~GradientSync() = default;
GradientSync::GradientSync(GradientSync&&) noexcept = default;
GradientSync& GradientSync::operator=(GradientSync&&) noexcept = default;

const std::vector<Parameter>& GradientSync::parameters() const { return impl_->parameters; }
std::uint64_t GradientSync::generation() const { return impl_->generation; }
MessageCost GradientSync::cost() const { return impl_->cost; }
std::uint32_t GradientSync::bucket_count() const {
  return static_cast<std::uint32_t>(impl_->layout.plan.buckets.size());
}
std::uint64_t GradientSync::replans() const { return impl_->replans; }
const StepTimeline& GradientSync::timeline() const { return impl_->timeline; }

View GradientSync::gradient(std::size_t parameter) const {
  const std::uint32_t p = impl_->index_of(parameter, "gradient");
  const Parameter& described = impl_->parameters[p];
  if (described.sparse)
    throw Error(failure(ErrorCode::invalid_argument,
                        "gradient: parameter {} \"{}\" is sparse, see sparse_gradient and ready_sparse", p,
                        described.name));
  return impl_->memory_of(p);
}

void GradientSync::begin_step() { impl_->begin_step(); }
void GradientSync::begin_backward() {
  impl_->check_usable();
  impl_->begin_marking();
  impl_->recording.backward_begin_s = impl_->now_s();
}

void GradientSync::set_samples(std::uint64_t samples) {
  std::lock_guard lock(impl_->mutex);
  impl_->set_samples(samples);
}

void GradientSync::ready(std::size_t parameter) noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->guarded([&] { impl_->ready(parameter); });
}
void GradientSync::ready_sparse(std::size_t parameter, SparseRows rows) noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->guarded([&] { impl_->ready_sparse(parameter, std::move(rows)); });
}
void GradientSync::unused(std::size_t parameter) noexcept {
  std::lock_guard lock(impl_->mutex);
  impl_->guarded([&] { impl_->unused(parameter); });
}

void GradientSync::set_synchronising(bool on) { impl_->set_synchronising(on); }
bool GradientSync::synchronising() const { return impl_->synchronising; }

void GradientSync::finish() { impl_->finish(); }
void GradientSync::wait(std::size_t parameter) { impl_->wait(impl_->index_of(parameter, "wait")); }
void GradientSync::wait_all() { impl_->wait_all(); }
bool GradientSync::complete(std::size_t parameter) const {
  return impl_->complete(impl_->index_of(parameter, "complete"));
}
bool GradientSync::overlaps_forward() const { return impl_->route.halves; }
bool GradientSync::accompany() { return impl_->accompany(); }

bool GradientSync::used(std::size_t parameter) const { return impl_->used[impl_->index_of(parameter, "used")]; }
const SparseRows& GradientSync::sparse_gradient(std::size_t parameter) const {
  return impl_->sparse_result(impl_->index_of(parameter, "sparse_gradient"));
}
std::uint64_t GradientSync::total_samples() const { return impl_->sums.samples; }
double GradientSync::clip_norm(double norm_max) { return impl_->clip_norm(norm_max); }

}  // namespace gradsync
