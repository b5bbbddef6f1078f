#include "data/fashion_mnist_data.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "data/data_error.hpp"
#include "data/idx.hpp"

namespace training {
namespace {

constexpr std::size_t side = 28;
// Of the 60,000 training images' pixels, in 0 to 1.
constexpr double pixel_mean = 0.2860, pixel_deviation = 0.3530;

void check(const IdxArray& images, const IdxArray& labels, const std::filesystem::path& images_file,
           const std::filesystem::path& labels_file) {
  const auto& shape = images.shape;
  if (shape[1] != side || shape[2] != side)
    throw DataError(
        images_file,
        "images are " + std::to_string(shape[1]) + " by " + std::to_string(shape[2]) + ", expected 28 by 28",
        fashion_mnist_package);
  if (shape[0] == 0) throw DataError(images_file, "holds no images", fashion_mnist_package);
  if (shape[0] != labels.shape[0])
    throw DataError(labels_file,
                    std::to_string(labels.shape[0]) + " labels, expected one for each of the " +
                        std::to_string(shape[0]) + " images",
                    fashion_mnist_package);
  const auto wrong = std::find_if(labels.values.begin(), labels.values.end(),
                                  [](std::uint8_t label) { return label >= fashion_mnist_classes; });
  if (wrong != labels.values.end())
    throw DataError(labels_file,
                    "label " + std::to_string(wrong - labels.values.begin()) + " is " + std::to_string(*wrong) +
                        ", expected 0 to 9",
                    fashion_mnist_package);
}

torch::Tensor tensor_of(const IdxArray& array, std::vector<std::int64_t> shape) {
  auto tensor = torch::empty(shape, torch::kUInt8);
  std::copy(array.values.begin(), array.values.end(), tensor.data_ptr<std::uint8_t>());
  return tensor;
}

}  // namespace

ImageBatch ImageSet::batch(std::span<const std::size_t> indices) const {
  const std::vector<std::int64_t> rows(indices.begin(), indices.end());
  const auto index = torch::tensor(rows, torch::kInt64);
  auto images = images_.index_select(0, index).to(torch::kFloat32);
  images.mul_(1 / (255 * pixel_deviation)).sub_(pixel_mean / pixel_deviation);
  return {images, labels_.index_select(0, index)};
}

ImageSet load_fashion_mnist(const std::filesystem::path& folder, Part part) {
  const std::string prefix = part == Part::train ? "train" : "t10k";
  const auto images_file = folder / (prefix + "-images-idx3-ubyte.gz");
  const auto labels_file = folder / (prefix + "-labels-idx1-ubyte.gz");
  const auto images = read_idx(images_file, 3, fashion_mnist_package);
  const auto labels = read_idx(labels_file, 1, fashion_mnist_package);
  check(images, labels, images_file, labels_file);
  const auto count = static_cast<std::int64_t>(images.shape[0]);
  return {tensor_of(images, {count, 1, side, side}), tensor_of(labels, {count}).to(torch::kInt64)};
}

}  // namespace training
