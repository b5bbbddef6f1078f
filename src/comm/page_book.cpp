#include "comm/page_book.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>

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

Result<Memory> PageBook::allocate(std::size_t bytes) {
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
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = ++ids_;
  }
  Result<std::shared_ptr<const Pages>> pages = Pages::create(id, mapped);
  if (!pages) return failure(ErrorCode::out_of_memory, "allocate {} bytes: {}", bytes, pages.status().message);
  std::byte* const data = (*pages)->bytes().data();
  const std::lock_guard lock(mutex_);
  std::erase_if(pages_, [](const auto& known) { return known.second.expired(); });
  pages_.insert_or_assign(data, *pages);
  return Memory(std::shared_ptr<std::byte>(*std::move(pages), data), bytes);
}

std::shared_ptr<const Pages> PageBook::find(std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  for (auto at = pages_.upper_bound(bytes.data()); at != pages_.begin();) {
    at = std::prev(at);
    auto pages = at->second.lock();
    if (!pages) {  // freed; what lay before it may reach further
      at = pages_.erase(at);
      continue;
    }
    const std::span<std::byte> all = pages->bytes();
    const auto offset = static_cast<std::size_t>(bytes.data() - all.data());
    return pages->whole() && offset < all.size() && bytes.size() <= all.size() - offset ? pages : nullptr;
  }
  return nullptr;
}

}  // namespace gradsync
