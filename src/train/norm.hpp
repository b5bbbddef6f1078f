// Sums of squares that do not depend on whether factors were applied before.
#pragma once

#include <span>
#include <vector>

#include "gradsync/gradient_sync.hpp"

namespace gradsync {

// Of view * factors[0] * factors[1] …, each product rounded to the dtype as if it were stored; the memory is only read.
double sum_of_squares(const View& view, std::span<const double> factors);

View values_of(SparseRows& rows, DType dtype);

}  // namespace gradsync
