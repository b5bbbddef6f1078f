#include "model.hpp"

#include <cmath>
#include <cstring>

namespace gradsync::training {
namespace {

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return std::ldexp(1, -11);
    case DType::bf16: return std::ldexp(1, -8);
    case DType::f32: return std::ldexp(1, -24);
    default: return std::ldexp(1, -53);
  }
}

constexpr double kLargest = 12;

}  // namespace

std::vector<Parameter> small_model() {
  return {{"first.weight", {33, 7}}, {"first.bias", {33}},       {"scale", {}},
          {"empty", {0, 4}},         {"wide.weight", {64, 301}}, {"wide.bias", {301}},
          {"head.weight", {10, 13}}, {"head.bias", {10}}};
}

std::vector<Parameter> mixed_model() {
  std::vector<Parameter> model;
  const DType types[] = {DType::f16, DType::bf16, DType::f32, DType::f64};
  for (int layer = 0; layer < 8; ++layer) {
    const std::string name = "layer" + std::to_string(layer);
    model.push_back({name + ".weight", {31 + layer, 40}, types[layer % 4]});
    model.push_back({name + ".bias", {40}, types[(layer + 1) % 4]});
  }
  return model;
}

std::vector<Parameter> many_parameters(std::size_t count) {
  std::vector<Parameter> model;
  for (std::size_t p = 0; p < count; ++p)
    model.push_back({"p" + std::to_string(p), {static_cast<std::int64_t>(1 + p % 7)}});
  return model;
}

double value_of(std::uint64_t step, std::size_t parameter, std::size_t element, int rank) {
  const auto mixed = step * 7 + parameter * 5 + element * 3 + static_cast<std::size_t>(rank) * 11;
  return static_cast<double>(mixed % 25) - kLargest;
}

void fill(const GradientSync& sync, std::size_t parameter, std::uint64_t step, int rank) {
  const View view = sync.gradient(parameter);
  for (std::size_t e = 0; e < view.count; ++e) cases::put(view.dtype, view.data, e, value_of(step, parameter, e, rank));
}

void backward(GradientSync& sync, std::uint64_t step, int rank) {
  for (std::size_t p = sync.parameters().size(); p-- > 0;) {
    fill(sync, p, step, rank);
    sync.ready(p);
  }
}

double mean_of(std::uint64_t step, std::size_t parameter, std::size_t element, int world,
               const std::vector<double>& weights) {
  double sum = 0, all = 0;
  for (int r = 0; r < world; ++r) {
    const double weight = weights.empty() ? 1 : weights[static_cast<std::size_t>(r)];
    if (weight > 0) sum += weight * value_of(step, parameter, element, r);
    all += weight;
  }
  return sum / all;
}

void expect_means_of(const GradientSync& sync, std::size_t parameter, std::uint64_t step, int world,
                     const std::vector<double>& weights, double ulps) {
  const Parameter& described = sync.parameters()[parameter];
  const View view = sync.gradient(parameter);
  ASSERT_EQ(view.count, described.elements());
  const double tolerance = ulps * epsilon_of(view.dtype) * kLargest;
  for (std::size_t e = 0; e < view.count; ++e)
    ASSERT_NEAR(cases::get(view.dtype, view.data, e), mean_of(step, parameter, e, world, weights), tolerance)
        << "step " << step << ", parameter " << described.name << ", element " << e;
}

void expect_means(const GradientSync& sync, std::uint64_t step, int world, const std::vector<double>& weights,
                  double ulps) {
  for (std::size_t p = 0; p < sync.parameters().size(); ++p)
    if (!sync.parameters()[p].sparse) expect_means_of(sync, p, step, world, weights, ulps);
}

std::vector<std::byte> bytes_of(const GradientSync& sync) {
  std::vector<std::byte> bytes;
  for (std::size_t p = 0; p < sync.parameters().size(); ++p) {
    if (sync.parameters()[p].sparse) continue;
    const View view = sync.gradient(p);
    const auto* data = static_cast<const std::byte*>(view.data);
    bytes.insert(bytes.end(), data, data + view.count * size_of(view.dtype));
  }
  return bytes;
}

}  // namespace gradsync::training
