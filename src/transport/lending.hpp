// Both sides' books of the memory that one stream between two processes lends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "transport/doorbell.hpp"
#include "transport/pages.hpp"

namespace gradsync {

// The writer's: what the reader has been told of. At most limits::pages_of_stream_max.
class PassedPages {
 public:
  // Whether the reader knows the pages, told now if it was not before. False: no room to say so.
  bool pass(const std::shared_ptr<const Pages>& pages, Doorbell& bell);
  // Tells the reader of those that are freed.
  void tell_freed(Doorbell& bell);

 private:
  struct Passed {
    std::uint64_t id = 0;
    std::weak_ptr<const Pages> pages;
  };
  std::vector<Passed> passed_;  // the latest used last
};

// The reader's: pages of the writer, mapped for reading.
class BorrowedPages final : public MemoryTaker {
 public:
  void take_memory(std::uint64_t id, Descriptor memory) override;
  void drop_memory(std::uint64_t id) override { pages_.erase(id); }
  // Where they are mapped here; nullptr if they are unknown, could not be mapped, or are shorter.
  const std::byte* find(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::map<std::uint64_t, Mapping> pages_;
};

}  // namespace gradsync
