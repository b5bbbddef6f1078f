// The norm of all gradients, the same number on every rank and in both overlaps, and scaling by it.
//
// Each rank adds up the squares of its slice of every bucket (slices.hpp); the partial sums of all ranks are exchanged and
// added bucket by bucket, rank by rank. After a reduce-scatter a rank's slice is all it holds of a bucket, and is enough.
#include <cmath>

#include "base/status.hpp"
#include "kernels/kernels.hpp"
#include "train/gradient_sync_impl.hpp"
#include "train/norm.hpp"
#include "train/slices.hpp"

namespace gradsync {

// What a bucket as it arrived is still to be multiplied by, one after another.
std::vector<double> GradientSync::Impl::factors_of(std::uint32_t item) const {
  std::vector<double> factors;
  if (!layout.items[item].sparse)  // sparse ones were corrected when they were merged
    factors.push_back(weights.correction(bucket_of(item).dtype, sums.samples));
  factors.insert(factors.end(), clip_factors.begin(), clip_factors.end());
  std::erase(factors, 1.0);
  return factors;
}

double GradientSync::Impl::squares_of(std::uint32_t item) const {
  const PlannedBucket& bucket = bucket_of(item);
  const Slice slice = slice_of(bucket, world, rank);
  const std::uint64_t begin = std::max<std::uint64_t>(slice.begin, bucket.header_elements);
  const std::uint64_t end = slice.begin + slice.count;
  if (begin >= end) return 0;
  const View part = arena.view(bucket.dtype, bucket.begin + begin, end - begin);
  return sum_of_squares(part, settled[item] ? std::vector<double>{} : factors_of(item));
}

double GradientSync::Impl::agreed_squares() {
  const std::size_t buckets = layout.items.size();
  std::vector<double> partial(world * buckets);
  double* mine = partial.data() + rank * buckets;
  for (std::uint32_t k = 0; k < buckets; ++k)
    if (!layout.items[k].sparse) mine[k] = squares_of(k);
  if (world > 1 && buckets > 0) lanes.control().all_gather(ConstView(mine, buckets, DType::f64), view(partial));
  double sum = 0;
  for (std::size_t k = 0; k < buckets; ++k)
    for (std::size_t r = 0; r < world; ++r) sum += partial[r * buckets + k];
  for (const Item& item : layout.items)
    if (item.sparse) {
      SparseRows& rows = sparse.result(item.index);
      sum += sum_of_squares(values_of(rows, parameters[item.index].dtype), {});
    }
  return sum;
}

double GradientSync::Impl::clip_norm(double norm_max) {
  check_usable();
  if (!(norm_max > 0))
    throw Error(
        failure(ErrorCode::invalid_argument, "clip_norm: the largest norm is {}, expected more than 0", norm_max));
  if (open || (sends == 0 && !forwarding))
    throw Error(failure(ErrorCode::invalid_argument, "clip_norm: finish() the step first"));
  double norm = 0;
  try {
    if (forwarding) {
      const Stopwatch waiting(recording.waited_s);
      receive_sums();
      for (std::uint32_t k = 0; k < layout.items.size(); ++k)
        if (layout.items[k].sparse) settle(k);
        else if (const Status status = finish_reduce(route, flights[k]); !status.ok()) fail_for_good(status);
    }
    norm = std::sqrt(agreed_squares());
  } catch (const Error& error) {
    if (broken.ok() && !lanes.control().status().ok()) fail_for_good(error.status());
    throw;
  }
  if (norm > norm_max && std::isfinite(norm)) scale_all(norm_max / norm);
  return norm;
}

void GradientSync::Impl::scale_all(double factor) {
  for (std::uint32_t k = 0; k < layout.items.size(); ++k)
    if (settled[k]) scale_item(k, factor);
  clip_factors.push_back(factor);
}

void GradientSync::Impl::scale_item(std::uint32_t item, double factor) {
  const std::uint32_t index = layout.items[item].index;
  View view;
  if (layout.items[item].sparse) {
    view = values_of(sparse.result(index), parameters[index].dtype);
  } else {
    const PlannedBucket& bucket = layout.plan.buckets[index];
    view = arena.view(bucket.dtype, bucket.begin + bucket.header_elements, bucket.count - bucket.header_elements);
  }
  kernels::scale(view.dtype, view.data, view.count, factor);
}

}  // namespace gradsync
