// The IDX format of the MNIST family: a magic number, one size a dimension (all u32, big-endian), then the elements.
// http://yann.lecun.com/exdb/mnist/ describes it; the files are compressed by gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace training {

struct IdxArray {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> values;  // row-major
};

// Reads an array of bytes with that many dimensions, at most 1 GiB. Throws DataError: missing, cut short, another magic number,
// sizes that disagree with the length. `package` is what the error tells to install.
IdxArray read_idx(const std::filesystem::path& file, std::size_t dimensions, const std::string& package);

}  // namespace training
