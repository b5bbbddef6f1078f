#include "transport/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

namespace gradsync {

Mapping::~Mapping() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<Mapping> Mapping::map(int memory, std::size_t bytes, int protection, int flags) {
  void* const at = ::mmap(nullptr, bytes, protection, flags, memory, 0);
  if (at == MAP_FAILED)
    return failure(ErrorCode::out_of_memory, "mapping {} bytes of stream memory: {}", bytes, errno_text(errno));
  Mapping mapping;
  mapping.bytes_ = {static_cast<std::byte*>(at), bytes};
  return mapping;
}

Result<Mapping> Mapping::anonymous(std::size_t bytes) {
  return map(-1, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}
Result<Mapping> Mapping::shared(int memory, std::size_t bytes) {
  return map(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
}
Result<Mapping> Mapping::shared_for_reading(int memory, std::size_t bytes) {
  return map(memory, bytes, PROT_READ, MAP_SHARED);
}

namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
ErrorCode code_of_creation(int error) { return error == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::unavailable; }
}  // namespace

Result<Descriptor> create_sealed_memory(std::size_t bytes) {
  Descriptor memory(::memfd_create("gradsync-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return failure(code_of_creation(errno), "creating shared memory: {}", errno_text(errno));
  int rc;
  do rc = ::fallocate(memory.get(), 0, 0, static_cast<off_t>(bytes));
  while (rc != 0 && errno == EINTR);
  if (rc != 0)
    return failure(ErrorCode::out_of_memory, "reserving {} bytes of shared memory: {}", bytes, errno_text(errno));
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0)
    return failure(ErrorCode::unavailable, "sealing shared memory: {}", errno_text(errno));
  return memory;
}

Result<std::size_t> sealed_memory_bytes(int memory) {
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals)
    return failure(ErrorCode::protocol, "shared memory of a peer is not sealed against shrinking and growing");
  struct stat info {};
  if (::fstat(memory, &info) != 0 || info.st_size < 0)
    return failure(ErrorCode::protocol, "size of a peer's shared memory: {}", errno_text(errno));
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace gradsync
