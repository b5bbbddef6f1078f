// Mapped memory: private to the process, or of a memfd that another process maps too.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/descriptor.hpp"
#include "base/status.hpp"

namespace gradsync {

// Owned pages, unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  // Zeroed pages of this process. out_of_memory if there are none.
  static Result<Mapping> anonymous(std::size_t bytes);
  // The first `bytes` of a memfd, shared. The caller made sure that it cannot shrink.
  static Result<Mapping> shared(int memory, std::size_t bytes);
  // The same, never to be written through `bytes()`.
  static Result<Mapping> shared_for_reading(int memory, std::size_t bytes);

  std::span<std::byte> bytes() const { return bytes_; }
  // Not unmapped at the end: the pages are somewhere else now.
  void release() { bytes_ = {}; }

 private:
  static Result<Mapping> map(int memory, std::size_t bytes, int protection, int flags);
  std::span<std::byte> bytes_;
};

// A memfd of `bytes` zeroed bytes: reserved, so that touching it never raises SIGBUS, and sealed against shrinking and
// growing. It has no name in any file system and vanishes with its last descriptor. out_of_memory if it cannot be
// reserved (limit of a memory group, full tmpfs), unavailable if the system has no memfd.
Result<Descriptor> create_sealed_memory(std::size_t bytes);
// The size of a memfd that somebody passed to us; protocol unless it is sealed as above.
Result<std::size_t> sealed_memory_bytes(int memory);

}  // namespace gradsync
