// One slot for each (rank, channel), in pages that are allocated when first used: a rank talks to few of many peers.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "transport/transport.hpp"

namespace gradsync {

template <class T>
class PeerTable {
 public:
  explicit PeerTable(std::uint32_t size) : size_(size), pages_((size + kRanks - 1) / kRanks) {}

  // The peer's slot, or nullptr if its page was never used.
  T* find(Peer peer) {
    auto& page = pages_[page_of(peer)];
    return page ? &(*page)[index_of(peer)] : nullptr;
  }
  T& operator[](Peer peer) {
    auto& page = pages_[page_of(peer)];
    if (!page) page = std::make_unique<Page>();
    return (*page)[index_of(peer)];
  }

 private:
  static constexpr std::uint32_t kRanks = 32;
  using Page = std::array<T, kRanks * kChannelCount>;
  std::size_t page_of(Peer peer) const {
    GRADSYNC_CHECK(peer.rank < size_ && static_cast<std::size_t>(peer.channel) < kChannelCount);
    return peer.rank / kRanks;
  }
  static std::size_t index_of(Peer peer) {
    return (peer.rank % kRanks) * kChannelCount + static_cast<std::size_t>(peer.channel);
  }

  std::uint32_t size_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace gradsync
