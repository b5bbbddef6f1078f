// The part of a step that sparse gradients take.
#include "base/status.hpp"
#include "train/gradient_sync_impl.hpp"

namespace gradsync {

void GradientSync::Impl::ready_sparse(std::size_t parameter, SparseRows rows) {
  if (!begun_marking()) return;
  const std::uint32_t p = index_of(parameter, "ready_sparse");
  const Parameter& described = parameters[p];
  if (!described.sparse)
    throw Error(failure(ErrorCode::invalid_argument, "ready_sparse: parameter {} \"{}\" is dense, use ready", p,
                        described.name));
  if (synchronising && readiness.marked(p)) return mark(p, true);  // throws
  sparse.add(p, std::move(rows));
  if (!synchronising) return readiness.accumulate(p);
  mark(p, true);
  launch_due();
}

void GradientSync::Impl::launch_sparse(std::uint32_t item, std::uint32_t parameter) {
  const DType dtype = parameters[parameter].dtype;
  SparseRows& pending = sparse.pending(parameter);
  look_for_not_finite(parameter, {pending.values.data(), pending.values.size() / size_of(dtype), dtype});
  HeaderMine mine = header_of({});
  mine.used = {counts_as_used(parameter)};
  flights[item].launched = time_now();
  const double factor = weights.nothing() ? 0 : weights.factor(dtype);
  sparse.launch(parameter, {rank, world}, mine, factor, lanes.of(item));
}

void GradientSync::Impl::push_sparse() { sparse.push({rank, world}, lanes.sparse()); }

void GradientSync::Impl::receive_sparse(std::uint32_t parameter) {
  try {
    sparse.receive(parameter, {rank, world}, lanes.sparse());
  } catch (const Error& error) { fail_for_good(error.status()); }
}

void GradientSync::Impl::read_sparse_heads(std::uint32_t parameter) {
  const HeaderSums header = sparse.sums(parameter);
  used[parameter] = header.used[0] > 0;
  merge(sums, {header.samples, header.ranks_run_out, header.ranks_not_finite, header.ranks_order_differs,
               header.ranks_failed, !options.find_unused && header.used[0] + header.ranks_run_out < world});
}

void GradientSync::Impl::settle_sparse(std::uint32_t parameter) {
  receive_sparse(parameter);
  used[parameter] = sparse.sums(parameter).used[0] > 0;
  sparse.merge(parameter, weights.correction(parameters[parameter].dtype, sums.samples) / world);
}

const SparseRows& GradientSync::Impl::sparse_result(std::uint32_t parameter) const {
  if (!parameters[parameter].sparse)
    throw Error(failure(ErrorCode::invalid_argument, "sparse_gradient: parameter {} \"{}\" is dense, see gradient",
                        parameter, parameters[parameter].name));
  return sparse.result(parameter);
}

}  // namespace gradsync
