#include "train/norm.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kPieceBytes = 16u << 10;

}  // namespace

double sum_of_squares(const View& view, std::span<const double> factors) {
  alignas(64) std::array<std::byte, kPieceBytes> scratch;
  const std::size_t element = size_of(view.dtype), piece = kPieceBytes / element;
  double sum = 0;
  for (std::size_t at = 0; at < view.count; at += piece) {
    const std::size_t count = std::min(piece, view.count - at);
    const std::byte* from = static_cast<const std::byte*>(view.data) + at * element;
    if (!factors.empty()) {
      std::memcpy(scratch.data(), from, count * element);
      for (const double factor : factors) kernels::scale(view.dtype, scratch.data(), count, factor);
      from = scratch.data();
    }
    sum += kernels::sum_of_squares(view.dtype, from, count);
  }
  return sum;
}

View values_of(SparseRows& rows, DType dtype) {
  return {rows.values.data(), rows.values.size() / size_of(dtype), dtype};
}

}  // namespace gradsync
