// Both sides' books of the memory that one side of a stream between two processes shows to the other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/doorbell.hpp"
#include "transport/pages.hpp"

namespace gradsync {

// Of the side whose memory it is: what the other has been told of. At most limits::pages_of_stream_max.
class PassedPages {
 public:
  // Whether the other knows the pages, told now if it was not before. False: no room to say so.
  bool pass(const std::shared_ptr<const Pages>& pages, Doorbell& bell);
  // Tells the other of those that are freed.
  void tell_freed(Doorbell& bell);

 private:
  struct Passed {
    std::uint64_t id = 0;
    std::weak_ptr<const Pages> pages;
  };
  std::vector<Passed> passed_;  // the latest used last
};

// The peers' pages as they are mapped here: once for all streams of a peer, since every mapping takes translations of its own, and
// for 4 KiB pages these are what a pass over a long message waits for.
class MappedPages {
 public:
  // Those of the rank under that number, mapped now if they were not; nullptr if they cannot be.
  std::shared_ptr<const Mapping> map(std::uint32_t rank, std::uint64_t id, const Descriptor& memory);

 private:
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::weak_ptr<const Mapping>> pages_;
};

// Of the other side: what it has told us of.
class BorrowedPages final : public MemoryTaker {
 public:
  // `mapped` may be null: nothing is borrowed then.
  BorrowedPages(std::shared_ptr<MappedPages> mapped, std::uint32_t rank) : mapped_(std::move(mapped)), rank_(rank) {}
  void take_memory(std::uint64_t id, Descriptor memory) override;
  void drop_memory(std::uint64_t id) override { pages_.erase(id); }
  // Where they are mapped here; nullptr if they are unknown, could not be mapped, or are shorter.
  std::byte* find(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const;
  // The same, mapped as long as the pointer lives.
  std::shared_ptr<std::byte> keep(std::uint64_t id, std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::shared_ptr<MappedPages> mapped_;
  std::uint32_t rank_;
  std::map<std::uint64_t, std::shared_ptr<const Mapping>> pages_;
};

}  // namespace gradsync
