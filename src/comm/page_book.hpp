// The registered memory of a site: what its communicators have allocated.
#pragma once

#include <map>
#include <mutex>

#include "gradsync/communicator.hpp"
#include "transport/pages.hpp"

namespace gradsync {

// Any thread.
class PageBook final : public PageRegistry {
 public:
  // Zeroed, page-aligned, reserved before use (no SIGBUS later). out_of_memory names the bytes and the cause. Known to
  // `find` until its last copy goes.
  Result<Memory> allocate(std::size_t bytes);
  std::shared_ptr<const Pages> find(std::span<const std::byte> bytes) override;

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<const Pages>> pages_;  // by their first byte
  std::uint64_t ids_ = 0;
};

}  // namespace gradsync
