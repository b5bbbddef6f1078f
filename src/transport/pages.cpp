#include "transport/pages.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace gradsync {

Result<std::shared_ptr<const Pages>> Pages::create(std::uint64_t id, std::size_t bytes, bool outlive) {
  Result<Descriptor> memory = create_sealed_memory(bytes);
  if (!memory) return memory.status();
  Result<Mapping> mapping = Mapping::shared(memory->get(), bytes);
  if (!mapping) return mapping.status();
  return std::shared_ptr<const Pages>(std::make_shared<Pages>(id, *std::move(memory), *std::move(mapping), outlive));
}

void Pages::replace(std::span<std::byte> part) const {
  whole_.store(false, std::memory_order_release);
  Result<Mapping> copy = Mapping::anonymous(part.size());
  if (!copy)
    return;  // no memory even for that: what the peer writes, it writes into a buffer whose operation has failed
  std::memcpy(copy->bytes().data(), part.data(), part.size());
  // Moves the copy's pages over ours in one step.
  if (::mremap(copy->bytes().data(), part.size(), part.size(), MREMAP_MAYMOVE | MREMAP_FIXED, part.data()) !=
      MAP_FAILED)
    copy->release();
}

void LastPages::add(const std::shared_ptr<const Pages>& pages) {
  if (last_[0].lock() == pages) return;
  std::swap(last_[0], last_[1]);
  if (last_[0].lock() != pages) last_[0] = pages;
}

std::shared_ptr<const Pages> LastPages::find(std::span<const std::byte> bytes) const {
  for (const auto& known : last_) {
    auto pages = known.lock();
    if (!pages) continue;
    const auto offset = static_cast<std::size_t>(bytes.data() - pages->bytes().data());
    if (offset < pages->bytes().size() && bytes.size() <= pages->bytes().size() - offset) return pages;
  }
  return nullptr;
}

Pages::~Pages() {
  if (outlive_ || !maker_.is_this()) return;  // a forked child shares the pages: they stay its parent's
  // May fail only for want of memory; then the pages go when the last process unmaps them.
  [[maybe_unused]] const int punched = ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                                   static_cast<off_t>(mapping_.bytes().size()));
}

}  // namespace gradsync
