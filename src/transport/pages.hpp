// Memory of this process that the other processes of the host can map, and so read where it lies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/process.hpp"
#include "transport/mapping.hpp"

namespace gradsync {

// Whole zeroed pages of a sealed memfd. At the end they go back to the system at once, even while a peer has them mapped, unless
// they `outlive` this: then once nobody has.
class Pages {
 public:
  // out_of_memory or unavailable as of create_sealed_memory.
  static Result<std::shared_ptr<const Pages>> create(std::uint64_t id, std::size_t bytes, bool outlive = false);
  Pages(std::uint64_t id, Descriptor memory, Mapping mapping, bool outlive = false)
      : id_(id),
        memory_(std::move(memory)),
        mapping_(std::move(mapping)),
        outlive_(outlive) {}
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::uint64_t id() const { return id_; }  // never used twice by a registry
  std::span<std::byte> bytes() const { return mapping_.bytes(); }
  int memory() const { return memory_.get(); }
  // From now on this process's memory there, whole pages of ours, is its own: what a peer still writes goes nowhere. The content
  // stays, but for what is written meanwhile. For a peer that does not answer; any thread may go on using the memory.
  void replace(std::span<std::byte> part) const;
  // Whether it can still be shown to peers.
  bool whole() const { return whole_.load(std::memory_order_acquire); }

 private:
  std::uint64_t id_;
  Descriptor memory_;
  Mapping mapping_;
  bool outlive_;
  MakingProcess maker_;
  mutable std::atomic<bool> whole_{true};
};

// The last two that were shown, found again even if they are not whole any more.
class LastPages {
 public:
  void add(const std::shared_ptr<const Pages>& pages);
  // Those that hold all of `bytes`; nullptr if these are not among them.
  std::shared_ptr<const Pages> find(std::span<const std::byte> bytes) const;

 private:
  std::array<std::weak_ptr<const Pages>, 2> last_;  // the latest first
};

// Which memory of this process is in such pages. Any thread.
class PageRegistry {
 public:
  virtual ~PageRegistry() = default;
  // The pages that hold all of `bytes`; nullptr if there are none.
  virtual std::shared_ptr<const Pages> find(std::span<const std::byte> bytes) = 0;
};

}  // namespace gradsync
