#include "comm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/descriptor.hpp"
#include "base/limits.hpp"

namespace gradsync {

Result<Memory> allocate_shared(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > limits::message_bytes_max)
    return failure(ErrorCode::out_of_memory, "allocate: {} bytes are beyond the limit of {}", bytes,
                   limits::message_bytes_max);
  const std::size_t mapped = (bytes + page - 1) / page * page;
  if (mapped == 0) return Memory(nullptr, 0);
  auto file = std::make_shared<Descriptor>(::memfd_create("gradsync", MFD_CLOEXEC));
  if (!*file) return failure(ErrorCode::out_of_memory, "allocate {} bytes: memfd_create: {}", bytes, errno_text(errno));
  if (const int error = ::posix_fallocate(file->get(), 0, static_cast<off_t>(mapped)); error != 0)
    return failure(ErrorCode::out_of_memory, "allocate {} bytes: {}", bytes, errno_text(error));
  void* data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (data == MAP_FAILED) return failure(ErrorCode::out_of_memory, "allocate {} bytes: mmap: {}", bytes, errno_text(errno));
  const auto unmap = [file, mapped](std::byte* p) { ::munmap(p, mapped); };
  return Memory(std::shared_ptr<std::byte>(static_cast<std::byte*>(data), unmap), bytes);
}

}  // namespace gradsync
