// The one loop: the operations of a communicator, moved over its transport. One thread at a time.
//
// Collectives run one after another, in the order in which they were submitted. Sends and receives between two ranks run
// beside them on a channel of their own: sends in order for each pair, receives as they match what arrives.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "engine/operation.hpp"
#include "engine/receives.hpp"

namespace gradsync {

class Engine {
 public:
  explicit Engine(std::unique_ptr<Transport> transport);
  ~Engine();

  void submit(std::unique_ptr<Operation> operation);

  // One pass over everything live; true if anything moved. A failure ends every operation and the engine for good.
  bool progress();
  // For a pass in which nothing moved, now and then and before sleeping: staging, mismatches, deadlines.
  bool attend(TimePoint now);
  // Whether nothing is waited for but long stretches of a collective's messages, over a network.
  bool waits_for_bulk() const;
  // Before the transport is armed: what is worth waking for.
  void await() const;
  // Ends every operation with the cause; later submissions end at once. The first cause stays.
  void fail(const Status& cause);
  // Ok, or the first stream that was found broken while it was needed. Nothing has failed for it yet: whoever left may have
  // left because of somebody else, and word of that may be on its way. The owner decides when to give up waiting.
  const Status& suspicion() const { return suspicion_; }

  // The collective that stands still, as a peer would be asked about it, and the peer that it waits for; nothing if none.
  struct Waiting {
    std::uint32_t peer;
    FrameHeader header;
  };
  std::optional<Waiting> waiting() const;
  // A peer waits in that collective: fails the engine with a mismatch if this rank has called, or calls, another.
  void hear_waiting(std::uint32_t from, const FrameHeader& header);
  // The peer that is waited for in collective `sequence` waits there for another, and so on: chain[0] for chain[1] …; nothing
  // is known of the last. A deadline's error says so.
  void hear_chain(std::uint64_t sequence, std::vector<std::uint32_t> chain) { chain_ = {sequence, std::move(chain)}; }
  // What it has heard of whom that peer waits for, the peer among it; only itself if nothing.
  std::vector<std::uint32_t> chain_of(std::uint64_t sequence, std::uint32_t peer) const;
  std::uint64_t movements() const { return movements_; }  // passes in which something moved

  bool idle() const { return collectives_.empty() && sends_.empty() && receives_.empty(); }
  const Status& failure_cause() const { return failed_; }  // ok unless failed
  // No deadline of what is live is earlier, though all may be later: it may be of an operation that has ended. Nothing if
  // idle.
  std::optional<Deadline> next_deadline() const;
  // When `attend` is to be called again though nothing has happened; nothing if there is no need.
  std::optional<TimePoint> stages_at() const;
  const Counters& counters() const { return counters_; }
  Transport& transport() { return *transport_; }
  // Those of the transport, where an operation waits for something that the transport does not know of, too.
  bool arm();
  void disarm();
  std::uint64_t completed() const { return counters_.operations + own_counters_.operations; }

 private:
  using Queue = std::deque<std::unique_ptr<Operation>>;

  const Movement* front_collective() const;
  Result<bool> advance_front(Queue& queue);
  bool advance_receives(bool& moved);  // false once failed
  void fail_or_suspect(const Status& problem);
  Status check_waiters() const;
  Status check_leftovers();
  Status find_overdue(TimePoint now);
  Status with_chain(Status late) const;
  Status overdue(const Operation& operation, const Operation& front) const;

  std::unique_ptr<Transport> transport_;
  ScratchPool pool_;
  HostBoard board_;
  Queue collectives_;
  std::map<std::uint32_t, Queue> sends_;  // by peer
  std::optional<Deadline> earliest_;      // a lower bound, brought up to date when it passes
  Counters counters_, own_counters_;      // of callers' operations, of the library's own
  Receives receives_{*transport_, pool_, counters_};
  CallHistory history_;
  std::uint64_t completed_sequence_ = 0;  // of the collectives
  std::uint32_t rank_ = 0;
  std::map<std::uint32_t, FrameHeader> waiters_;  // by rank: where it said that it waits
  struct Chain {
    std::uint64_t sequence = 0;
    std::vector<std::uint32_t> ranks;
  } chain_;
  std::uint64_t movements_ = 0;
  Status failed_, suspicion_;
};

}  // namespace gradsync
