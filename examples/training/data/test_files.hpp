// For tests: a folder of its own, removed at the end, and files in it.
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace training {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "gradsync-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path gzip(const std::string& name, const std::vector<std::uint8_t>& bytes) const {
    const auto file = path_ / name;
    const gzFile out = gzopen(file.c_str(), "wb");
    const bool written =
        out != nullptr && (bytes.empty() || gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())) > 0);
    if (!written || gzclose(out) != Z_OK) throw std::runtime_error("cannot write " + file.string());
    return file;
  }
  std::filesystem::path text(const std::string& name, const std::string& content) const {
    const auto file = path_ / name;
    std::ofstream(file, std::ios::binary) << content;
    return file;
  }
  void flip_byte(const std::filesystem::path& file, std::uintmax_t position) const {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(static_cast<std::streamoff>(position));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(position));
    stream.put(static_cast<char>(byte ^ 0xff));
  }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::uint8_t> idx_bytes(const std::vector<std::uint32_t>& shape,
                                           const std::vector<std::uint8_t>& values) {
  std::vector<std::uint8_t> bytes = {0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape)
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(size >> shift));
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

}  // namespace training
