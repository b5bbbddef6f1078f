// How an operation under way is moved: the streams of an execution, or a run at the board.
#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"
#include "engine/binding.hpp"
#include "engine/call.hpp"
#include "gradsync/counters.hpp"
#include "schedule/cursor.hpp"
#include "transport/transport.hpp"

namespace gradsync {

// What is to be moved.
struct Setup {
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  Channel channel = Channel::collective;
  Call call;
  std::shared_ptr<const Schedule> schedule;
  Binding binding;
  Aliasing aliasing = Aliasing::none;
  const CallHistory* history = nullptr;  // borrowed; for the words of a mismatch
};

class Movement {
 public:
  virtual ~Movement() = default;
  // Moves what can move now; true if anything did. A failure is final.
  virtual Result<bool> advance(Transport& transport, Counters& counters) = 0;
  // For a pass in which nothing moved: see Execution.
  virtual Result<bool> stage(Transport& transport, Counters& counters, TimePoint now) = 0;
  virtual std::optional<TimePoint> stages_at() const = 0;
  // Looks at the first frame of every stream that is open to us, awaited or not: a peer that called something else is found
  // even where this rank's schedule does not wait for it.
  virtual Status check_senders(Transport& transport) = 0;
  // Whether nothing is waited for but long stretches to or from ranks on other hosts: a look in a moment will find little.
  virtual bool waits_for_bulk(const Transport&) const { return false; }
  // Before a sleep: tells the transport how many bytes of a message it is worth waking for.
  virtual void await(Transport&) const {}
  // Before sleeping, once peers would ring: whether what was waited for has come.
  virtual bool news() { return false; }
  // The operation has failed: nothing of the caller's memory is touched by anyone once this returns.
  virtual void withdraw(Transport&) {}

  virtual bool finished() const = 0;
  // The rank that is waited for, -1 if none, and words for it: "recv from rank 2, step 7".
  virtual int waits_for() const = 0;
  virtual std::string waits_in_words() const = 0;
  virtual const Setup& setup() const = 0;
};

// "all_reduce #42": how errors name an operation.
std::string operation_name(const Call& call, std::uint64_t sequence);
// Whether a frame from that rank is one of the operation; the words of what is wrong with it.
Status check_header(const Setup& setup, std::uint32_t from, const FrameHeader& header, std::uint64_t payload_bytes);
// A frame that lies first on its stream and is not awaited: a mismatch if its sender called something else than the operation.
Status check_first_frame(const Setup& setup, std::uint32_t from, Transport& transport);
// Of a whole frame header, to compare it by a word.
std::uint64_t fingerprint_of(const FrameBytes& header);

}  // namespace gradsync
