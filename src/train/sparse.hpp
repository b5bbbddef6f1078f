// Sparse gradients: lists of rows, merged over the ranks.
#pragma once

#include <cstdint>
#include <span>

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

// Rows sorted and unique; rows that occur several times are added in the order in which they stand, floats of 16 bits in f32
// and rounded once, then multiplied by `scale` before that rounding. So, with the ranks' lists one after another, equal bits
// on all ranks. invalid_argument if a row is outside of 0 … rows_total - 1 (names it) or if sizes do not fit.
SparseRows merge_rows(const SparseRows& all, DType dtype, std::size_t row_elements, std::int64_t rows_total,
                      double scale);

}  // namespace gradsync
