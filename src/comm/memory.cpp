#include "comm/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>

#include "base/descriptor.hpp"
#include "base/limits.hpp"

namespace gradsync {
namespace {

// Bytes that the system can still give; reserving more would wake the kernel's killer instead of failing. Unknown: all.
std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::size_t kib = 0;
  while (file >> name >> kib && std::getline(file, unit))
    if (name == "MemAvailable:") return kib << 10;
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace

Result<Memory> allocate_shared(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > limits::message_bytes_max)
    return failure(ErrorCode::out_of_memory, "allocate: {} bytes are beyond the limit of {}", bytes,
                   limits::message_bytes_max);
  const std::size_t mapped = (bytes + page - 1) / page * page;
  if (mapped == 0) return Memory(nullptr, 0);
  constexpr std::size_t worth_a_look = 64u << 20;
  if (mapped > worth_a_look)
    if (const std::size_t left = available_bytes(); mapped > left)
      return failure(ErrorCode::out_of_memory, "allocate {} bytes: the system has {} left", bytes, left);
  auto file = std::make_shared<Descriptor>(::memfd_create("gradsync", MFD_CLOEXEC));
  if (!*file) return failure(ErrorCode::out_of_memory, "allocate {} bytes: memfd_create: {}", bytes, errno_text(errno));
  if (const int error = ::posix_fallocate(file->get(), 0, static_cast<off_t>(mapped)); error != 0)
    return failure(ErrorCode::out_of_memory, "allocate {} bytes: {}", bytes, errno_text(error));
  void* data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (data == MAP_FAILED)
    return failure(ErrorCode::out_of_memory, "allocate {} bytes: mmap: {}", bytes, errno_text(errno));
  const auto unmap = [file, mapped](std::byte* p) { ::munmap(p, mapped); };
  return Memory(std::shared_ptr<std::byte>(static_cast<std::byte*>(data), unmap), bytes);
}

}  // namespace gradsync
