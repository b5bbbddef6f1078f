#include "data/idx.hpp"

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "data/data_error.hpp"

namespace training {
namespace {

constexpr std::size_t bytes_max = std::size_t{1} << 30;
constexpr std::uint32_t magic_of_bytes = 0x0800;  // element type u8; the lowest byte is the number of dimensions

class GzipFile {
 public:
  GzipFile(const std::filesystem::path& file, const std::string& package) : path_(file), package_(package) {
    if (!std::filesystem::exists(file)) fail("no such file");
    errno = 0;
    file_.reset(gzopen(file.c_str(), "rb"));
    if (!file_) fail(std::string("cannot be opened: ") + std::strerror(errno));
  }

  [[noreturn]] void fail(const std::string& what) const { throw DataError(path_, what, package_); }

  void read(std::uint8_t* to, std::size_t bytes, const std::string& part) {
    constexpr std::size_t piece_max = std::size_t{1} << 24;  // gzread counts in unsigned int
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t piece = std::min(piece_max, bytes - done);
      const int got = gzread(file_.get(), to + done, static_cast<unsigned>(piece));
      if (got < 0) fail(part + ": damaged, " + error_text());
      if (got == 0)
        fail("cut short: " + part + " has " + std::to_string(done) + " bytes, expected " + std::to_string(bytes));
      done += static_cast<std::size_t>(got);
    }
  }

  std::uint32_t read_u32(const std::string& part) {
    std::array<std::uint8_t, 4> bytes{};
    read(bytes.data(), bytes.size(), part);
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
  }

  // Also checks what gzip itself wrote at the end: its checksum and length.
  void expect_end() {
    std::uint8_t more = 0;
    const int got = gzread(file_.get(), &more, 1);
    if (got > 0) fail("longer than its sizes say");
    if (got < 0 || !whole()) fail("damaged at its end, " + error_text());
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };

  std::string error_text() const {
    int code = 0;
    return gzerror(file_.get(), &code);
  }
  bool whole() const {
    int code = 0;
    gzerror(file_.get(), &code);
    return code == Z_OK || code == Z_STREAM_END;
  }

  std::filesystem::path path_;
  std::string package_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, std::size_t dimensions, const std::string& package) {
  GzipFile file(path, package);
  const std::uint32_t magic = file.read_u32("magic number");
  const auto expected = magic_of_bytes | static_cast<std::uint32_t>(dimensions);
  if (magic != expected)
    file.fail("magic number is " + std::to_string(magic) + ", expected " + std::to_string(expected));

  IdxArray array;
  std::size_t bytes = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    const std::size_t size = file.read_u32("sizes");
    if (size != 0 && bytes > bytes_max / size) file.fail("its sizes say more than 1 GiB");
    bytes *= size;
    array.shape.push_back(size);
  }
  array.values.resize(bytes);
  file.read(array.values.data(), bytes, "data");
  file.expect_end();
  return array;
}

}  // namespace training
