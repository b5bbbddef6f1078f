// The first-in-first-out channels of a walked world: one an ordered pair of ranks that ever talk.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "base/status.hpp"

namespace gradsync {

// Finds the number of a pair's channel: 0, 1, … in the order of first use. Open addressing, at most half full.
class ChannelNumbers {
 public:
  struct Pair {
    std::uint32_t from, to;
    friend bool operator==(const Pair&, const Pair&) = default;
  };
  ChannelNumbers() : slots_(64, kNone) {}

  std::uint32_t number(Pair pair) {
    std::uint32_t& found = slot(pair);
    if (found != kNone) return found;
    const std::uint32_t number = found = static_cast<std::uint32_t>(pairs_.size());
    pairs_.push_back(pair);
    if (2 * pairs_.size() > slots_.size()) grow();
    return number;
  }
  Pair pair(std::uint32_t number) const { return pairs_[number]; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(pairs_.size()); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  std::uint32_t& slot(Pair pair) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = mix64(std::uint64_t{pair.from} << 32 | pair.to) & mask;
    while (slots_[i] != kNone && !(pairs_[slots_[i]] == pair)) i = (i + 1) & mask;
    return slots_[i];
  }
  void grow() {
    slots_.assign(2 * slots_.size(), kNone);
    for (std::uint32_t i = 0; i < pairs_.size(); ++i) slot(pairs_[i]) = i;
  }
  std::vector<std::uint32_t> slots_;
  std::vector<Pair> pairs_;
};

// Messages under way, in one pool whose entries (and their memory) are used again.
template <class Message>
class Channels {
 public:
  std::uint32_t number(std::uint32_t from, std::uint32_t to) {
    const std::uint32_t n = numbers_.number({from, to});
    if (n == queues_.size()) queues_.push_back({});
    return n;
  }
  ChannelNumbers::Pair pair(std::uint32_t channel) const { return numbers_.pair(channel); }
  std::uint32_t count() const { return numbers_.count(); }
  std::uint64_t under_way(std::uint32_t channel) const { return queues_[channel].count; }

  // A new last message, with the old contents of some entry. Valid until the next call.
  Message& push(std::uint32_t channel) {
    std::uint32_t entry = free_;
    if (entry == kNone) {
      entry = static_cast<std::uint32_t>(pool_.size());
      pool_.emplace_back();
    } else {
      free_ = pool_[entry].next;
    }
    pool_[entry].next = kNone;
    Queue& queue = queues_[channel];
    (queue.count++ == 0 ? queue.first : pool_[queue.last].next) = entry;
    queue.last = entry;
    return pool_[entry].message;
  }
  Message& front(std::uint32_t channel) { return pool_[queues_[channel].first].message; }
  void pop(std::uint32_t channel) {
    Queue& queue = queues_[channel];
    GRADSYNC_CHECK(queue.count > 0);
    const std::uint32_t entry = queue.first;
    queue.first = pool_[entry].next;
    --queue.count;
    pool_[entry].next = free_;
    free_ = entry;
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Queue {
    std::uint32_t first = kNone, last = kNone;
    std::uint64_t count = 0;
  };
  struct Entry {
    Message message;
    std::uint32_t next = kNone;
  };
  ChannelNumbers numbers_;
  std::vector<Queue> queues_;
  std::vector<Entry> pool_;
  std::uint32_t free_ = kNone;
};

}  // namespace gradsync
