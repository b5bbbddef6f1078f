// Proofs: a world of schedules walked over sets of contributions instead of bytes.
//
// What is proven. Every rank's output holds exactly what the collective promises, each contribution once; no rank reads
// a chunk that nobody wrote, writes its input, or leaves its spaces; every message is received, by a range of the same
// chunks; the replicas' results are bitwise equal; and no rank waits forever as long as `counts.window_min` messages of
// each ordered pair of ranks may be under way.
//
// Why one walk decides. With a lookahead of 1 and bounded first-in-first-out channels, a world of ranks is a Kahn
// process network (Kahn 1974): no rank asks whether a message is there, it only waits. Such networks are confluent, so
// every order of running them reaches the same values, or the same deadlock, and it is enough to walk one. A larger
// lookahead only runs what commutes with all that it overtakes.
#pragma once

#include <cstdint>

#include "algorithms/world.hpp"
#include "base/status.hpp"
#include "schedule/cursor.hpp"
#include "schedule/layouts.hpp"

namespace gradsync {

// Exact counts of one operation. Elements are counted with the layouts of ProveOptions.
struct ProofCounts {
  // The longest chain of messages, by Lamport clocks in program order: a send is one step later than its rank's clock;
  // a receive moves the clock to the latest step that its rank has sent or received in. Sends with no receive between
  // them share a step, as do both directions of an exchange (which is why folding takes a step at either end even where
  // the partner's half of the first exchange was sent early: recursive doubling of 3 ranks has 3 steps, not 2).
  std::uint64_t steps = 0;
  std::uint64_t messages = 0, messages_max = 0;  // sent by all ranks; by the rank that sends most
  std::uint64_t sent = 0, sent_max = 0;          // elements, likewise
  std::uint64_t reduced = 0, reduced_max = 0;    // elements combined into what was there
  // Elements that have landed at a rank and not taken effect, at most, when every receiver is as lazy as it can be: a
  // receive runs only when no rank can send, copy or reduce (then the one that could run first), with a window of
  // `window_min`.
  std::uint64_t staging_max = 0;
  // Messages of an ordered pair that must be allowed to be under way (sent and not in effect) before the sender waits.
  std::uint64_t window_min = 1;
  friend bool operator==(const ProofCounts&, const ProofCounts&) = default;
};

enum class ProofDomain : std::uint8_t { automatic, sets, fingerprints };

struct ProveOptions {
  Aliasing aliasing = Aliasing::none;
  // automatic: sets of contributions up to limits::proof_sets_ranks_max ranks, fingerprints above. A fingerprint is a
  // sum of random numbers below 2^61 - 1, one a contribution: a wrong multiset passes with probability below 2^-60 a
  // chunk.
  ProofDomain domain = ProofDomain::automatic;
  LayoutsOf layouts = one_element_a_chunk;
};

// `status` is the first violation in the order of the walk: "rank 2 step 5 (recv 4 from rank 1): …".
struct Proof {
  Status status;
  ProofCounts counts;  // whole only if the status is ok
  bool ok() const { return status.ok(); }
};

Proof prove(const World& world, const ProveOptions& options = {});
// Of a recipe; fails with check()'s error if there is no such schedule.
Proof prove(const Recipe& recipe, const ProveOptions& options = {});
// Of schedules in memory, schedules[r] being rank r's.
Proof prove(std::span<const Schedule> schedules, const ProveOptions& options = {});

// Whether input and output may be the same memory (all but the all-to-all, and send and recv).
bool allows_in_place(Collective collective);

// Both aliasings that the collective allows, with equal counts: what the catalogue is proven with.
Proof prove_all_aliasings(const Recipe& recipe, const ProveOptions& options = {});

}  // namespace gradsync
