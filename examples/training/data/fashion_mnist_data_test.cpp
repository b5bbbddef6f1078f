#include "data/fashion_mnist_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_error.hpp"
#include "data/test_files.hpp"

namespace training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* images_name = "train-images-idx3-ubyte.gz";
constexpr const char* labels_name = "train-labels-idx1-ubyte.gz";

// Image i is i everywhere.
std::vector<std::uint8_t> images(std::uint32_t count, std::uint32_t side = 28) {
  std::vector<std::uint8_t> values;
  for (std::uint32_t i = 0; i < count; ++i) values.insert(values.end(), side * side, static_cast<std::uint8_t>(i));
  return idx_bytes({count, side, side}, values);
}

std::string error_of(const TestFolder& folder) {
  try {
    load_fashion_mnist(folder.path(), Part::train);
    return "";
  } catch (const DataError& error) { return error.what(); }
}

TEST(FashionMnist, GivesNormalisedImagesWithTheirLabels) {
  const TestFolder folder;
  folder.gzip(images_name, images(3));
  folder.gzip(labels_name, idx_bytes({3}, {9, 0, 4}));
  const auto set = load_fashion_mnist(folder.path(), Part::train);
  ASSERT_EQ(set.size(), 3u);
  const std::vector<std::size_t> chosen = {2, 0};
  const auto batch = set.batch(chosen);
  EXPECT_EQ(batch.images.sizes(), (std::vector<std::int64_t>{2, 1, 28, 28}));
  EXPECT_EQ(batch.labels[0].item<std::int64_t>(), 4);
  EXPECT_EQ(batch.labels[1].item<std::int64_t>(), 9);
  EXPECT_NEAR(batch.images[0].min().item<double>(), (2 / 255.0 - 0.2860) / 0.3530, 1e-6);
  EXPECT_NEAR(batch.images[1].max().item<double>(), (0 / 255.0 - 0.2860) / 0.3530, 1e-6);
}

TEST(FashionMnist, NamesTheFileAndDebiansPackageWhereItIsMissing) {
  const TestFolder folder;
  folder.gzip(images_name, images(3));
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr(labels_name), HasSubstr("'dataset-fashion-mnist'")));
}

TEST(FashionMnist, RefusesFewerLabelsThanImages) {
  const TestFolder folder;
  folder.gzip(images_name, images(3));
  folder.gzip(labels_name, idx_bytes({2}, {1, 2}));
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr(labels_name), HasSubstr("2 labels"), HasSubstr("the 3 images")));
}

TEST(FashionMnist, RefusesALabelAboveNine) {
  const TestFolder folder;
  folder.gzip(images_name, images(3));
  folder.gzip(labels_name, idx_bytes({3}, {1, 10, 2}));
  EXPECT_THAT(error_of(folder), HasSubstr("label 1 is 10, expected 0 to 9"));
}

TEST(FashionMnist, RefusesImagesOfAnotherSize) {
  const TestFolder folder;
  folder.gzip(images_name, images(3, 27));
  folder.gzip(labels_name, idx_bytes({3}, {1, 1, 2}));
  EXPECT_THAT(error_of(folder), HasSubstr("27 by 27, expected 28 by 28"));
}

TEST(FashionMnist, RefusesAnEmptySet) {
  const TestFolder folder;
  folder.gzip(images_name, images(0));
  folder.gzip(labels_name, idx_bytes({0}, {}));
  EXPECT_THAT(error_of(folder), HasSubstr("holds no images"));
}

}  // namespace
}  // namespace training
