// Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): 60,000 images of clothes to train on and 10,000 to test with, ten classes.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <span>

namespace training {

inline constexpr const char* fashion_mnist_package = "dataset-fashion-mnist";
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";
inline constexpr std::int64_t fashion_mnist_classes = 10;

struct ImageBatch {
  torch::Tensor images;  // (N, 1, 28, 28) f32, mean 0 and standard deviation 1 over the training images
  torch::Tensor labels;  // (N) i64, 0 to 9
};

// Kept as bytes: an eighth of the memory of f32 and of the time to read it.
class ImageSet {
 public:
  ImageSet(torch::Tensor images, torch::Tensor labels) : images_(std::move(images)), labels_(std::move(labels)) {}
  std::size_t size() const { return static_cast<std::size_t>(labels_.size(0)); }
  ImageBatch batch(std::span<const std::size_t> indices) const;

 private:
  torch::Tensor images_;  // (N, 1, 28, 28) u8
  torch::Tensor labels_;  // (N) i64
};

enum class Part { train, test };

// Throws DataError for what read_idx refuses, for images that are not 28 by 28, for different numbers of images and
// labels, none of them, and a label above 9.
ImageSet load_fashion_mnist(const std::filesystem::path& folder, Part part);

}  // namespace training
