#include "torch/checkpoint_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/descriptor.hpp"
#include "base/wire.hpp"

namespace gradsync::torch {
namespace {

// magic[8], version u32, zero u32, payload bytes u64, CRC-64 of the payload u64
constexpr std::size_t kHeaderBytes = 32;
constexpr std::string_view kMagic = "gsynckpt";
constexpr std::uint32_t kVersion = 1;

constexpr std::array<std::uint64_t, 256> crc_table() {
  std::array<std::uint64_t, 256> table{};
  for (std::uint64_t i = 0; i < table.size(); ++i) {
    std::uint64_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0xc96c5795d7870f42u : 0);
    table[i] = value;
  }
  return table;
}

Status io_failure(const char* verb, const std::string& path, int error) {
  return failure(ErrorCode::unavailable, "{} checkpoint {}: {}", verb, path, errno_text(error));
}

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return io_failure("write", path, written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status write_temporary(const std::string& temporary, const std::string& path, std::string_view header,
                       std::string_view payload) {
  const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return io_failure("create", temporary, errno);
  Status status = write_all(file.get(), header, path);
  if (status.ok()) status = write_all(file.get(), payload, path);
  if (status.ok() && ::fsync(file.get()) != 0) status = io_failure("write", path, errno);
  return status;
}

// That the new name survives a loss of power. Some file systems cannot sync a folder; that is not a failure.
void sync_folder_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const Descriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) static_cast<void>(::fsync(folder.get()));
}

std::string header_of(std::string_view payload) {
  std::array<std::byte, kHeaderBytes> header{};
  WireWriter out(header);
  out.bytes(kMagic);
  out.u32(kVersion);
  out.u32(0);
  out.u64(payload.size());
  out.u64(crc64(payload));
  return {reinterpret_cast<const char*>(header.data()), header.size()};
}

Result<std::string> read_whole(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return io_failure("read", path, errno);
  if (!S_ISREG(facts.st_mode)) return failure(ErrorCode::unavailable, "read checkpoint {}: not a regular file", path);
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t part = ::read(file.get(), bytes.data() + got, bytes.size() - got);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return io_failure("read", path, errno);
    if (part == 0) break;
    got += static_cast<std::size_t>(part);
  }
  bytes.resize(got);
  return bytes;
}

}  // namespace

std::uint64_t crc64(std::string_view bytes) {
  static constexpr std::array<std::uint64_t, 256> kTable = crc_table();
  std::uint64_t crc = ~std::uint64_t{0};
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

Status write_checkpoint_file(const std::string& path, std::string_view payload) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))  // never replaces a device or a folder
    return failure(ErrorCode::unavailable, "write checkpoint {}: not a regular file", path);
  const std::string temporary = path + ".partial";
  Status status = write_temporary(temporary, path, header_of(payload), payload);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = io_failure("replace", path, errno);
  if (!status.ok()) {
    static_cast<void>(::unlink(temporary.c_str()));
    return status;
  }
  sync_folder_of(path);
  return {};
}

Result<std::string> read_checkpoint_file(const std::string& path) {
  Result<std::string> whole = read_whole(path);
  if (!whole) return whole;
  if (whole->size() < kHeaderBytes)
    return failure(ErrorCode::protocol, "checkpoint {} is cut short: {} bytes, expected at least {}", path,
                   whole->size(), kHeaderBytes);
  WireReader in(std::as_bytes(std::span(whole->data(), kHeaderBytes)));
  if (in.bytes(kMagic.size()) != kMagic)
    return failure(ErrorCode::protocol, "{} is not a checkpoint of gradsync", path);
  const std::uint32_t version = in.u32();
  if (version != kVersion || in.u32() != 0)
    return failure(ErrorCode::protocol, "checkpoint {} is of version {}, expected {}", path, version, kVersion);
  const std::uint64_t bytes = in.u64(), checksum = in.u64(), there = whole->size() - kHeaderBytes;
  if (bytes != there)
    return failure(ErrorCode::protocol, "checkpoint {} is {}: {} bytes after the header, expected {}", path,
                   there < bytes ? "cut short" : "too long", there, bytes);
  std::string payload = whole->substr(kHeaderBytes);
  if (crc64(payload) != checksum)
    return failure(ErrorCode::protocol, "checkpoint {} is damaged: its {} bytes do not match their checksum", path,
                   bytes);
  return payload;
}

}  // namespace gradsync::torch
