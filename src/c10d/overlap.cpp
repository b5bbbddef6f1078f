#include "c10d/overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "c10d/staging.hpp"

namespace gradsync::pytorch {
namespace {

using Tensors = std::vector<at::Tensor>;

// A dimension with more than one element.
struct Dimension {
  std::int64_t stride, size;
};

std::vector<Dimension> dimensions_of(const at::Tensor& tensor) {
  std::vector<Dimension> dimensions;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dimensions.push_back({tensor.stride(i), tensor.size(i)});
  std::sort(dimensions.begin(), dimensions.end(), [](Dimension a, Dimension b) { return a.stride < b.stride; });
  return dimensions;
}

std::int64_t last_element(const std::vector<Dimension>& dimensions) {
  std::int64_t last = 0;
  for (const Dimension& dimension : dimensions) last += dimension.stride * (dimension.size - 1);
  return last;
}

// Calls visit(offset in elements) until it says false; whether it never did.
template <class Visit>
bool each_element(const std::vector<Dimension>& dimensions, std::size_t depth, std::int64_t at, const Visit& visit) {
  if (depth == 0) return visit(at);
  const Dimension& dimension = dimensions[depth - 1];
  for (std::int64_t i = 0; i < dimension.size; ++i)
    if (!each_element(dimensions, depth - 1, at + i * dimension.stride, visit)) return false;
  return true;
}

// Of a tensor with elements.
struct Extent {
  const at::Tensor* tensor;
  std::size_t index;
  bool input;
  std::uintptr_t begin, end;
};

Extent extent_of(const at::Tensor& tensor, std::size_t index, bool input) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  const std::size_t bytes = tensor.is_contiguous()
                                ? tensor.nbytes()
                                : static_cast<std::size_t>(last_element(dimensions_of(tensor)) + 1) * tensor.itemsize();
  return {&tensor, index, input, begin, begin + bytes};
}

// Which units of memory are taken, of tensors whose extents overlap.
class Map {
 public:
  explicit Map(std::span<const Extent> extents)
      : origin_(extents.front().begin),
        unit_(extents.front().tensor->itemsize()) {
    std::uintptr_t last = 0;
    for (const Extent& extent : extents) {
      origin_ = std::min(origin_, extent.begin);
      last = std::max(last, extent.end);
    }
    for (const Extent& extent : extents)
      if (extent.tensor->itemsize() != unit_ || (extent.begin - origin_) % unit_ != 0) unit_ = 1;
    taken_.resize((last - origin_ + unit_ - 1) / unit_);
  }

  // False at the first element of which a unit is taken. Takes them if asked to.
  bool visit(const Extent& extent, bool take) {
    const std::vector<Dimension> dimensions = dimensions_of(*extent.tensor);
    const std::size_t each = extent.tensor->itemsize() / unit_, first = (extent.begin - origin_) / unit_;
    return each_element(dimensions, dimensions.size(), 0, [&](std::int64_t element) {
      const std::size_t from = first + static_cast<std::size_t>(element) * each;
      for (std::size_t unit = from; unit < from + each; ++unit) {
        if (taken_[unit]) return false;
        if (take) taken_[unit] = true;
      }
      return true;
    });
  }

 private:
  std::uintptr_t origin_;
  std::size_t unit_;
  std::vector<bool> taken_;
};

std::string named(const Extent& extent) {
  return fmt::format("{} {}, {}", extent.input ? "input" : "output", extent.index, describe(*extent.tensor));
}

[[noreturn]] void refuse(const char* call, const Extent& a, const Extent& b) {
  throw Error(Status{ErrorCode::invalid_argument, -1,
                     fmt::format("{}: {}, and {} share memory{}", call, named(a), named(b),
                                 a.input || b.input ? ", but not in place" : ", so they cannot both be written")});
}

// The first of the outputs that has memory in common with `other`.
void refuse_for(const char* call, const std::vector<Extent>& outputs, const Extent& other) {
  for (const Extent& output : outputs) {
    if (output.tensor == other.tensor) return;
    Map map(std::array{output, other});
    map.visit(output, true);
    if (!map.visit(other, false)) refuse(call, output, other);
  }
}

// Of extents that overlap one another, such as the columns of a matrix, which are apart all the same.
void check_cluster(const char* call, std::span<const Extent> cluster) {
  std::vector<Extent> outputs, inputs;
  for (const Extent& extent : cluster) (extent.input ? inputs : outputs).push_back(extent);
  if (outputs.empty()) return;
  Map map(cluster);
  for (const Extent& output : outputs)
    if (!map.visit(output, true)) refuse_for(call, outputs, output);
  for (const Extent& input : inputs)
    if (!map.visit(input, false)) refuse_for(call, outputs, input);
}

}  // namespace

bool in_place(const at::Tensor& tensor, const at::Tensor& place) {
  if (!place.defined() || tensor.data_ptr() != place.data_ptr() || tensor.itemsize() != place.itemsize()) return false;
  if (tensor.is_contiguous() && place.is_contiguous()) return tensor.numel() == place.numel();
  return tensor.sizes() == place.sizes() && tensor.strides() == place.strides();
}

bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() < 2 || tensor.is_contiguous()) return false;
  const std::vector<Dimension> dimensions = dimensions_of(tensor);
  std::int64_t last = 0;
  bool nested = true;  // each step of a dimension leaves all of the smaller ones behind
  for (const Dimension& dimension : dimensions) {
    if (dimension.stride == 0) return true;
    nested = nested && dimension.stride > last;
    last += dimension.stride * (dimension.size - 1);
  }
  if (nested) return false;
  const Extent alone = extent_of(tensor, 0, false);
  return !Map({&alone, 1}).visit(alone, true);
}

void check_apart(const char* call, const Tensors& outputs, const Tensors& inputs, const Tensors& places) {
  std::vector<Extent> extents;
  extents.reserve(outputs.size() + inputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].numel() > 0) extents.push_back(extent_of(outputs[i], i, false));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].numel() > 0 && !(i < places.size() && in_place(inputs[i], places[i])))
      extents.push_back(extent_of(inputs[i], i, true));
  const auto earlier = [](const Extent& a, const Extent& b) { return a.begin < b.begin; };
  if (!std::is_sorted(extents.begin(), extents.end(), earlier)) std::sort(extents.begin(), extents.end(), earlier);
  for (auto begin = extents.cbegin(); begin != extents.cend();) {
    auto end = begin + 1;
    for (std::uintptr_t last = begin->end; end != extents.cend() && end->begin < last; ++end)
      last = std::max(last, end->end);
    if (end - begin > 1) check_cluster(call, {begin, end});
    begin = end;
  }
}

Tensors place_of(const at::Tensor& output, int rank, std::size_t ranks) {
  Tensors places(ranks);
  places[static_cast<std::size_t>(rank)] = output;
  return places;
}

at::Tensor block_of(const at::Tensor& whole, int rank, const at::Tensor& part) {
  if (!whole.is_contiguous()) return {};
  return whole.view(-1).narrow(0, rank * part.numel(), part.numel());
}

}  // namespace gradsync::pytorch
