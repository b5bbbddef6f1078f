#include "data/idx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "data/data_error.hpp"
#include "data/test_files.hpp"

namespace training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const std::filesystem::path& file, std::size_t dimensions) {
  try {
    read_idx(file, dimensions, "some-package");
    return "";
  } catch (const DataError& error) { return error.what(); }
}

TEST(Idx, ReadsShapeAndValues) {
  const TestFolder folder;
  std::vector<std::uint8_t> values(24);
  std::iota(values.begin(), values.end(), std::uint8_t{1});
  const auto array = read_idx(folder.gzip("a.gz", idx_bytes({2, 3, 4}, values)), 3, "some-package");
  EXPECT_EQ(array.shape, (std::vector<std::size_t>{2, 3, 4}));
  EXPECT_EQ(array.values, values);
}

TEST(Idx, NamesFileAndPackageWhereItIsMissing) {
  const TestFolder folder;
  EXPECT_THAT(error_of(folder.path() / "absent.gz", 1),
              AllOf(HasSubstr("absent.gz: no such file"), HasSubstr("'some-package'")));
}

TEST(Idx, RefusesEveryTruncation) {
  const TestFolder folder;
  const auto whole = folder.gzip("whole.gz", idx_bytes({40}, std::vector<std::uint8_t>(40, 7)));
  const auto bytes = std::filesystem::file_size(whole);
  for (std::uintmax_t length = 0; length < bytes; ++length) {
    const auto cut = folder.path() / "cut.gz";
    std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, length);
    EXPECT_THAT(error_of(cut, 1), AllOf(HasSubstr("cut.gz"), HasSubstr("'some-package'"))) << length << " of " << bytes;
  }
}

TEST(Idx, SaysHowManyBytesAreMissingInsideTheArchive) {
  const TestFolder folder;
  const auto file = folder.gzip("short.gz", idx_bytes({40}, std::vector<std::uint8_t>(33, 7)));
  EXPECT_THAT(error_of(file, 1), HasSubstr("cut short: data has 33 bytes, expected 40"));
}

TEST(Idx, RefusesMoreDataThanItsSizesSay) {
  const TestFolder folder;
  const auto file = folder.gzip("long.gz", idx_bytes({3}, {1, 2, 3, 4}));
  EXPECT_THAT(error_of(file, 1), HasSubstr("longer than its sizes say"));
}

TEST(Idx, RefusesAnotherNumberOfDimensions) {
  const TestFolder folder;
  const auto file = folder.gzip("a.gz", idx_bytes({3}, {1, 2, 3}));
  EXPECT_THAT(error_of(file, 3), HasSubstr("magic number is 2049, expected 2051"));
}

TEST(Idx, RefusesSizesThatNoMemoryCouldHold) {
  const TestFolder folder;
  const auto file = folder.gzip("a.gz", idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, {}));
  EXPECT_THAT(error_of(file, 3), HasSubstr("more than 1 GiB"));
}

TEST(Idx, RefusesADamagedArchive) {
  const TestFolder folder;
  const auto file = folder.gzip("a.gz", idx_bytes({64}, std::vector<std::uint8_t>(64, 7)));
  folder.flip_byte(file, std::filesystem::file_size(file) - 6);  // in the checksum
  EXPECT_THAT(error_of(file, 1), HasSubstr("damaged"));
}

}  // namespace
}  // namespace training
