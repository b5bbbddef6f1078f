#include "transport/lending.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace gradsync {

bool PassedPages::pass(const std::shared_ptr<const Pages>& pages, Doorbell& bell) {
  tell_freed(bell);
  const auto known = std::find_if(passed_.begin(), passed_.end(), [&](const Passed& p) { return p.id == pages->id(); });
  if (known != passed_.end()) {
    std::rotate(known, known + 1, passed_.end());
    return true;
  }
  if (passed_.size() >= limits::pages_of_stream_max) {
    if (!bell.pass_end_of_memory(passed_.front().id)) return false;
    passed_.erase(passed_.begin());
  }
  if (!bell.pass_memory(pages->id(), pages->memory())) return false;
  passed_.push_back({pages->id(), pages});
  return true;
}

void PassedPages::tell_freed(Doorbell& bell) {
  std::erase_if(passed_, [&](const Passed& p) { return p.pages.expired() && bell.pass_end_of_memory(p.id); });
}

std::shared_ptr<const Mapping> MappedPages::map(std::uint32_t rank, std::uint64_t id, const Descriptor& memory) {
  std::erase_if(pages_, [](const auto& known) { return known.second.expired(); });
  auto& known = pages_[{rank, id}];
  if (auto mapping = known.lock()) return mapping;
  const auto bytes = sealed_memory_bytes(memory.get());  // never touched beyond its end, whatever the peer says
  if (!bytes.ok() || *bytes == 0) return nullptr;
  auto mapping = Mapping::shared(memory.get(), *bytes);
  if (!mapping.ok()) return nullptr;
  auto kept = std::make_shared<const Mapping>(std::move(*mapping));
  known = kept;
  return kept;
}

void BorrowedPages::take_memory(std::uint64_t id, Descriptor memory) {
  if (!memory || !mapped_ || pages_.size() >= limits::pages_of_stream_max) return;
  if (auto mapping = mapped_->map(rank_, id, memory)) pages_.insert_or_assign(id, std::move(mapping));
}

std::byte* BorrowedPages::find(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const {
  const auto found = pages_.find(id);
  if (found == pages_.end()) return nullptr;
  const auto all = found->second->bytes();
  if (bytes > all.size() || offset > all.size() - bytes) return nullptr;
  return all.data() + offset;
}

std::shared_ptr<std::byte> BorrowedPages::keep(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const {
  std::byte* const data = find(id, offset, bytes);
  return data ? std::shared_ptr<std::byte>(pages_.find(id)->second, data) : nullptr;
}

}  // namespace gradsync
