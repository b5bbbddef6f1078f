#include "train/sparse.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/float_mode.hpp"
#include "base/status.hpp"
#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

void check_rows(const SparseRows& all, DType dtype, std::size_t row_elements, std::int64_t rows_total) {
  if (!is_floating(dtype))
    throw Error(failure(ErrorCode::invalid_argument, "sparse gradient: dtype is {}, expected f16, bf16, f32 or f64",
                        name_of(dtype)));
  const std::size_t row_bytes = row_elements * size_of(dtype);
  const bool fits = row_bytes == 0
                        ? all.values.empty()
                        : all.values.size() % row_bytes == 0 && all.values.size() / row_bytes == all.rows.size();
  if (!fits)
    throw Error(failure(ErrorCode::invalid_argument,
                        "sparse gradient: {} bytes of values, expected {} rows of {} bytes", all.values.size(),
                        all.rows.size(), row_bytes));
  for (std::size_t k = 0; k < all.rows.size(); ++k)
    if (all.rows[k] < 0 || all.rows[k] >= rows_total)
      throw Error(failure(ErrorCode::invalid_argument,
                          "sparse gradient: row {} at position {} is outside of a parameter of {} rows", all.rows[k], k,
                          rows_total));
}

// Positions by row; those of one row in the order in which they stand.
std::vector<std::size_t> sorted_positions(const std::vector<std::int64_t>& rows) {
  std::vector<std::size_t> positions(rows.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  std::ranges::stable_sort(positions, {}, [&](std::size_t k) { return rows[k]; });
  return positions;
}

// Rounded to odd: the last bit is set if digits were lost, so that a further rounding to 16 bits is the only one that counts
// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
float to_odd(double value) {
  const auto near = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(near);
  if (static_cast<double>(near) == value || value != value || (bits & 1) != 0) return near;
  const bool outward =
      (value < 0 ? -value : value) > (near < 0 ? -static_cast<double>(near) : static_cast<double>(near));
  return std::bit_cast<float>(outward ? bits + 1 : bits - 1);
}

// The sum of one row, in f32 or f64, scaled in f64.
class RowSum {
 public:
  RowSum(DType dtype, std::size_t elements, double scale)
      : dtype_(dtype),
        work_(kernels::work_of(dtype, ReduceOp::sum)),
        elements_(elements),
        scale_(scale),
        sum_(elements * kernels::size_of(work_)),
        term_(sum_.size()) {}

  void begin(const std::byte* row) { kernels::widen(dtype_, work_, sum_.data(), row, elements_); }
  void add(const std::byte* row) {
    kernels::widen(dtype_, work_, term_.data(), row, elements_);
    kernels::combine(work_, ReduceOp::sum, sum_.data(), term_.data(), elements_);
  }
  void end(std::byte* into) {
    if (scale_ != 1.0) multiply();
    kernels::finish(dtype_, ReduceOp::sum, work_, 1, into, sum_.data(), elements_);
  }

 private:
  [[gnu::noinline]] void multiply() {
    const auto each = [this]<class T>(T, auto rounded) {
      for (std::size_t i = 0; i < elements_; ++i) {
        T value;
        std::memcpy(&value, sum_.data() + i * sizeof(T), sizeof(T));
        value = rounded(static_cast<double>(value) * scale_);
        std::memcpy(sum_.data() + i * sizeof(T), &value, sizeof(T));
      }
    };
    if (dtype_ == DType::f64) return each(double{}, [](double value) { return value; });
    if (dtype_ == DType::f32) return each(float{}, [](double value) { return static_cast<float>(value); });
    each(float{}, to_odd);
  }

  DType dtype_;
  kernels::Work work_;
  std::size_t elements_;
  double scale_;
  std::vector<std::byte> sum_, term_;
};

}  // namespace

SparseRows merge_rows(const SparseRows& all, DType dtype, std::size_t row_elements, std::int64_t rows_total,
                      double scale) {
  check_rows(all, dtype, row_elements, rows_total);
  const DefaultFloatMode mode;
  const std::size_t row_bytes = row_elements * size_of(dtype);
  const std::vector<std::size_t> positions = sorted_positions(all.rows);
  RowSum sum(dtype, row_elements, scale);
  SparseRows merged;
  merged.values.resize(all.values.size());
  for (std::size_t k = 0; k < positions.size();) {
    const std::int64_t row = all.rows[positions[k]];
    sum.begin(all.values.data() + positions[k] * row_bytes);
    for (++k; k < positions.size() && all.rows[positions[k]] == row; ++k)
      sum.add(all.values.data() + positions[k] * row_bytes);
    sum.end(merged.values.data() + merged.rows.size() * row_bytes);
    merged.rows.push_back(row);
  }
  merged.values.resize(merged.rows.size() * row_bytes);
  return merged;
}

}  // namespace gradsync
