#include "train/header.hpp"

#include <algorithm>
#include <cmath>

#include "base/status.hpp"
#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

constexpr std::uint32_t kFlags = 4;
constexpr std::uint64_t kSamplesEnd = std::uint64_t{1} << 40;
constexpr std::uint32_t kLineBytes = 64;

// The largest sum that an element may have.
std::uint64_t sum_max(DType dtype) {
  switch (dtype) {
    case DType::bf16: return (1u << 7) - 1;
    case DType::f16: return (1u << 10) - 1;
    case DType::f32: return (1u << 23) - 1;
    default: return (std::uint64_t{1} << 52) - 1;
  }
}

std::uint64_t group_ranks(const HeaderShape& shape) {
  return shape.world < sum_max(shape.dtype) ? shape.world : sum_max(shape.dtype);
}

// A group's digits add up to at most ranks * (base - 1).
std::uint64_t digit_base(const HeaderShape& shape) { return sum_max(shape.dtype) / group_ranks(shape) + 1; }

std::uint32_t sample_digits(const HeaderShape& shape) {
  const std::uint64_t base = digit_base(shape);
  std::uint32_t digits = 0;
  for (std::uint64_t left = kSamplesEnd - 1; left != 0; left /= base) ++digits;
  return digits;
}

void put_all(DType dtype, const std::vector<double>& values, void* into) {
  if (dtype == DType::f64) return static_cast<void>(std::ranges::copy(values, static_cast<double*>(into)));
  const std::vector<float> narrow(values.begin(), values.end());  // exact: below 2^23
  kernels::finish(dtype, ReduceOp::sum, kernels::work_of(dtype, ReduceOp::sum), 1, into, narrow.data(), narrow.size());
}

std::vector<double> get_all(const HeaderShape& shape, const void* from) {
  const std::uint32_t count = shape.groups() * shape.group_elements();
  if (shape.dtype == DType::f64) return {static_cast<const double*>(from), static_cast<const double*>(from) + count};
  std::vector<float> wide(count);
  kernels::widen(shape.dtype, kernels::Work::f32, wide.data(), from, count);
  return {wide.begin(), wide.end()};
}

// Reads one group's elements one after another as the whole numbers that they were before the mean was taken.
class GroupReader {
 public:
  GroupReader(const double* at, double factor, std::uint64_t most) : at_(at), factor_(factor), most_(most) {}
  std::uint64_t next() {
    const double value = *at_++ * factor_;
    if (!(value >= 0.5)) return 0;
    return value < static_cast<double>(most_) ? static_cast<std::uint64_t>(std::floor(value + 0.5)) : most_;
  }
  std::uint32_t next_ranks() { return static_cast<std::uint32_t>(next()); }

 private:
  const double* at_;
  double factor_;
  std::uint64_t most_;
};

void add_group(const HeaderShape& shape, GroupReader group, HeaderSums& sums) {
  sums.ranks_run_out += group.next_ranks();
  sums.ranks_not_finite += group.next_ranks();
  sums.ranks_order_differs += group.next_ranks();
  sums.ranks_failed += group.next_ranks();
  const std::uint64_t base = digit_base(shape);
  std::uint64_t weight = 1;
  for (std::uint32_t digit = sample_digits(shape); digit != 0; --digit, weight *= base)
    sums.samples += group.next() * weight;
  for (std::uint32_t& ranks : sums.used) ranks += group.next_ranks();
}

}  // namespace

std::uint32_t HeaderShape::groups() const {
  const std::uint64_t ranks = group_ranks(*this);
  return static_cast<std::uint32_t>((world + ranks - 1) / ranks);
}

std::uint32_t HeaderShape::group_elements() const { return kFlags + sample_digits(*this) + parameters; }

std::uint32_t HeaderShape::elements() const {
  const auto line = static_cast<std::uint32_t>(kLineBytes / size_of(dtype));
  return (groups() * group_elements() + line - 1) / line * line;
}

void write_header(const HeaderShape& shape, std::uint32_t rank, const HeaderMine& mine, void* into) {
  GRADSYNC_CHECK(rank < shape.world && mine.samples < kSamplesEnd && mine.used.size() == shape.parameters);
  std::vector<double> values(shape.elements());
  double* at = values.data() + rank / group_ranks(shape) * shape.group_elements();
  for (const bool flag : {mine.run_out, mine.not_finite, mine.order_differs, mine.failed}) *at++ = flag ? 1 : 0;
  const std::uint64_t base = digit_base(shape);
  std::uint64_t left = mine.samples;
  for (std::uint32_t digit = sample_digits(shape); digit != 0; --digit, left /= base)
    *at++ = static_cast<double>(left % base);
  for (const bool used : mine.used) *at++ = used ? 1 : 0;
  put_all(shape.dtype, values, into);
}

HeaderSums read_header(const HeaderShape& shape, const void* from, bool averaged) {
  const std::vector<double> values = get_all(shape, from);
  const double factor = averaged ? static_cast<double>(shape.world) : 1.0;
  HeaderSums sums;
  sums.used.resize(shape.parameters);
  for (std::uint32_t group = 0; group < shape.groups(); ++group)
    add_group(shape, GroupReader(values.data() + group * shape.group_elements(), factor, sum_max(shape.dtype)), sums);
  return sums;
}

}  // namespace gradsync
