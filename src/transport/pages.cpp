#include "transport/pages.hpp"

#include <fcntl.h>

namespace gradsync {

Result<std::shared_ptr<const Pages>> Pages::create(std::uint64_t id, std::size_t bytes) {
  Result<Descriptor> memory = create_sealed_memory(bytes);
  if (!memory) return memory.status();
  Result<Mapping> mapping = Mapping::shared(memory->get(), bytes);
  if (!mapping) return mapping.status();
  return std::shared_ptr<const Pages>(std::make_shared<Pages>(id, *std::move(memory), *std::move(mapping)));
}

Pages::~Pages() {
  if (!maker_.is_this()) return;  // a forked child shares the pages: they stay its parent's
  // May fail only for want of memory; then the pages go when the last process unmaps them.
  [[maybe_unused]] const int punched = ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                                   static_cast<off_t>(mapping_.bytes().size()));
}

}  // namespace gradsync
