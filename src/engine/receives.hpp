// The receives between two ranks, matched with what arrives as MPI says it (MPI 4.0, section 3.5).
//
// A message fits the receives of its sender and those of any rank that have its tag; of these it goes to the one that was
// posted first. The messages of a stream are looked at in order. One that fits no receive stays on its stream, and its
// sender waits as for a full stream, unless a receive waits for what may be behind it: then it is kept here, and goes to
// the first receive posted later that it fits. So no kept message ever fits a receive that waits, and looking at streams
// in any order, at any time, gives a matching that MPI permits.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/operation.hpp"

namespace gradsync {

class Receives {
 public:
  // Borrowed for life.
  Receives(Transport& transport, ScratchPool& pool, Counters& counters)
      : transport_(transport),
        pool_(pool),
        counters_(counters) {}

  // Takes a message that is kept, or waits.
  Status post(std::unique_ptr<Operation> operation);
  // Unless empty: one pass over the streams that matter; sets `moved` if anything did. A peer_lost comes after all streams had their turn.
  Status progress(bool& moved);
  // peer_lost if a receive of any rank waits and every other rank is gone. Asks about each: for a pass in which nothing moved.
  Status find_everyone_gone();
  // Ends all receives; the streams are of no use then.
  void fail(const Status& cause);

  bool empty() const { return posted_ == 0; }
  // The first that is found to be late, and for the others the earliest deadline.
  Status find_overdue(TimePoint now, std::optional<Deadline>& earliest) const;

 private:
  static constexpr std::uint32_t kAny = ~std::uint32_t{0};

  struct Posted {
    std::uint64_t order = 0;
    std::unique_ptr<Operation> operation;
  };
  // A message that fits no receive so far, or as much of it as has arrived.
  struct Kept {
    FrameHeader header;
    std::unique_ptr<std::byte[]> data;
    std::uint64_t arrived = 0;
    bool whole() const { return arrived == header.payload_bytes; }
  };
  // A rank that something is expected of. At most one of `taking` and `filling`: whose payload is next on the stream.
  struct Source {
    std::unique_ptr<Operation> taking;
    Kept* filling = nullptr;
    std::map<std::uint32_t, std::list<Kept>> kept;  // by tag
    std::uint64_t waiting = 0;                      // receives of this very rank
    bool prepared = false;                          // one of them is, for the next message
    bool idle() const { return !taking && kept.empty() && waiting == 0; }
  };
  using Sources = std::map<std::uint32_t, Source>;
  using Lines = std::map<std::pair<std::uint32_t, std::uint32_t>, std::list<Posted>>;  // by sender or kAny, and tag

  Status progress_source(std::uint32_t rank, Source& source, bool& moved);
  Result<bool> take(Source& source, bool& moved);
  Result<bool> fill(std::uint32_t rank, Source& source, bool& moved);
  Result<bool> begin_next(std::uint32_t rank, Source& source, bool& moved);
  Status begin(Operation& operation, const FrameHeader& header, std::unique_ptr<std::byte[]> data,
               std::uint64_t arrived);
  Result<bool> prepare(std::uint32_t rank, Source& source);
  Status check(std::uint32_t rank, const FrameHeader& header) const;
  std::unique_ptr<Operation> match(std::uint32_t rank, Source& source, std::uint32_t tag);
  Status keep(std::uint32_t rank, Source& source, const FrameHeader& header);
  Status claim(Sources::iterator from, std::unique_ptr<Operation> operation);
  Sources::iterator kept_for(std::uint32_t sender, std::uint32_t tag);
  void complete(std::unique_ptr<Operation> operation);
  void forget_partial(Source& source);
  void add_senders();
  Status overdue(const Operation& operation, bool waits) const;

  Transport& transport_;
  ScratchPool& pool_;
  Counters& counters_;
  std::uint64_t epoch_ = 0;
  std::uint32_t rank_ = 0, world_ = 0;
  Sources sources_;
  Lines waiting_;
  std::uint64_t order_ = 0;        // of the last that was posted
  std::uint64_t posted_ = 0;       // not completed
  std::uint64_t any_waiting_ = 0;  // receives of any rank
  std::uint64_t kept_count_ = 0, kept_bytes_ = 0;
  std::uint32_t last_any_ =
      0;  // whom a receive of any rank was last matched with: the next turn is that of the ranks after it
  std::uint32_t probed_ = 0;
  std::vector<std::uint32_t> senders_;  // scratch of add_senders
};

}  // namespace gradsync
