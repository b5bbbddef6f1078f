// An operation as the engine holds it: an execution between a prologue (widening) and an epilogue (rounding, division).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "engine/board_run.hpp"
#include "engine/execution.hpp"

namespace gradsync {

// What becomes of an operation; shared with whoever waits. Written once by the engine's thread.
class Completion {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Valid once done.
  const Status& status() const { return status_; }
  TimePoint when() const { return when_; }
  int source() const { return source_; }
  // `source`: whom a receive came from, -1 of anything else.
  void finish(Status status, int source = -1) {
    status_ = std::move(status);
    source_ = source;
    when_ = std::chrono::steady_clock::now();
    done_.store(true, std::memory_order_release);
  }

 private:
  Status status_;
  TimePoint when_;
  int source_ = -1;
  std::atomic<bool> done_{false};
};

// Everything that a caller decided: filled by comm/, run by the engine.
struct Request {
  std::uint64_t sequence = 0;
  Channel channel = Channel::collective;
  Call call;
  std::shared_ptr<const Schedule> schedule;
  bool any_source = false;      // a receive of any rank; its schedule is that of one of them until it is bound
  const void* input = nullptr;  // the caller's memory, borrowed until done
  std::shared_ptr<const void> owned_input;  // where the library made a copy of it
  void* output = nullptr;
  Layout input_layout, output_layout;  // of the whole message; equal except for all_to_all
  Deadline deadline = Deadline::after(Nanoseconds{0});
  std::uint64_t contributions = 1;  // avg divides by it

  // Of collectives only, run by the thread that drives the engine.
  std::function<Status(Request&)> settle;  // when its turn has come: fills in what was left open, equally on all ranks
  std::function<void(Nanoseconds)> took;   // when it has ended well: how long, from its turn on
  std::function<void(std::uint64_t messages)> received;  // when so many more messages of it are here as a whole
  // The library's own, on behalf of a call that follows: what the frames and the errors say was called. Not counted.
  std::optional<Call> on_behalf_of;
  const Call& called() const { return on_behalf_of ? *on_behalf_of : call; }
};

// Memory of one communicator's operations that is kept from one to the next.
class ScratchPool {
 public:
  // At least `bytes`, 64-byte aligned, content undefined; throws nothing, null if there is no memory.
  std::shared_ptr<std::byte> take(std::size_t bytes);

 private:
  std::shared_ptr<std::byte> kept_;
  std::size_t kept_bytes_ = 0;
};

class Operation {
 public:
  Operation(Request request, std::uint64_t epoch, std::shared_ptr<Completion> completion);

  // Of a receive of any rank: the one that it receives from. Before `start`.
  void bind_source(std::uint32_t rank);
  // Allocates and widens; fails with out_of_memory. Called once, when the operation's turn has come. At the board if there is
  // one and such an operation is done there.
  Status start(ScratchPool& pool, const CallHistory* history = nullptr, HostBoard* board = nullptr);
  bool started() const { return execution_.has_value() || board_run_.has_value(); }
  Movement& movement() { return board_run_ ? static_cast<Movement&>(*board_run_) : *execution_; }
  const Movement& movement() const { return board_run_ ? static_cast<const Movement&>(*board_run_) : *execution_; }
  Result<bool> advance(Transport& transport, Counters& counters);
  // Of one that is not done at the board.
  Execution& execution() { return *execution_; }
  const Execution& execution() const { return *execution_; }
  // After the last step: rounds, divides, and leaves the result in the caller's output.
  void complete();
  void fail(Status status) { completion_->finish(std::move(status)); }

  const Request& request() const { return request_; }
  std::uint64_t epoch() const { return epoch_; }
  std::string name() const { return operation_name(request_.called(), request_.sequence); }

 private:
  bool reduces() const;
  bool widens() const;
  bool divides_on_the_way() const;

  Request request_;
  std::uint64_t epoch_;
  std::shared_ptr<Completion> completion_;
  kernels::Work work_;
  std::shared_ptr<std::byte> scratch_, wide_input_, wide_output_;
  std::optional<Execution> execution_;
  std::optional<BoardRun> board_run_;
  TimePoint began_;
};

}  // namespace gradsync
