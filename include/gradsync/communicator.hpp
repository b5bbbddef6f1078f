// A group of processes (or threads) that exchange data together.
//
//   auto comm = gradsync::Communicator::create();            // rank, size and rendezvous from the environment
//   std::vector<float> gradients = …;
//   comm.all_reduce(gradsync::view(gradients), gradsync::ReduceOp::avg);
//
// Every rank calls the same collectives in the same order with matching arguments; a mismatch is an error on every rank.
// Blocking calls throw gradsync::Error. `*_async` calls return a Work at once and throw only for what is refused; the
// buffers must live, unchanged, until the Work is done. What is refused before it begins, with invalid_argument,
// unsupported or out_of_range (more than 65536 asynchronous calls under way), leaves the communicator as it was. After any other failure it has failed: later calls throw the same
// cause. Calls of one communicator may come from several threads; all ranks must agree on the order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gradsync/counters.hpp"
#include "gradsync/error.hpp"
#include "gradsync/options.hpp"
#include "gradsync/types.hpp"

namespace gradsync {

// Memory of `count` elements. Borrowed; null is allowed when count is 0.
struct View {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
};
struct ConstView {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;
  ConstView() = default;
  ConstView(const void* d, std::size_t n, DType t) : data(d), count(n), dtype(t) {}
  ConstView(const View& v) : data(v.data), count(v.count), dtype(v.dtype) {}
};

template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) return DType::f32;
  else if constexpr (std::is_same_v<U, double>) return DType::f64;
  else if constexpr (std::is_same_v<U, bool>) return DType::boolean;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 1) return DType::i8;
  else if constexpr (std::is_integral_v<U> && std::is_unsigned_v<U> && sizeof(U) == 1) return DType::u8;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 4) return DType::i32;
  else if constexpr (std::is_integral_v<U> && std::is_unsigned_v<U> && sizeof(U) == 4) return DType::u32;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 8) return DType::i64;
  else {
    static_assert(std::is_integral_v<U> && std::is_unsigned_v<U> && sizeof(U) == 8,
                  "no gradsync element type; for f16 and bf16 write View{data, count, DType::bf16}");
    return DType::u64;
  }
}
// A view of anything contiguous: vector, array, span.
template <class Container>
auto view(Container&& c) {
  using T = std::remove_reference_t<decltype(*std::data(c))>;
  if constexpr (std::is_const_v<T>) return ConstView(std::data(c), std::size(c), dtype_of<T>());
  else return View{std::data(c), std::size(c), dtype_of<T>()};
}

// An operation under way. Copies share it. Dropping every copy does not cancel it.
class Work {
 public:
  Work() = default;
  bool valid() const { return state_ != nullptr; }
  bool done() const;      // finished, well or not; never blocks
  void wait();            // throws gradsync::Error if it failed; bounded by the operation's own deadline
  Status status() const;  // ok while under way and when finished well; never throws
  // Waits at most `duration`; true if done by then. Never throws.
  bool wait_for(std::chrono::nanoseconds duration);
  std::uint64_t sequence() const;  // the operation's number on its communicator, from 1
  // Of a receive that has ended well: the rank that it came from. -1 of anything else.
  int source() const;
  // When it finished, well or not, as the thread that moved it saw; the clock's epoch while it is under way. What a caller
  // that comes later needs to tell how much of an operation was hidden behind its own work.
  std::chrono::steady_clock::time_point completed_at() const;

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// What one call may ask for. All ranks pass the same algorithm, segments and shards.
struct CallOptions {
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t segments = 0;                            // pipeline segments where it has them, at most 64; 0 = chosen
  std::optional<std::chrono::nanoseconds> timeout = {};  // above 0; instead of the communicator's
  std::uint32_t tag = 0;                                 // of send and recv only
  // Of asynchronous calls: only threads that wait for it move it on, without the progress thread, which costs a hand-over.
  // For callers that will wait at once, in slices of their own.
  bool moved_by_waiter = false;
  // Of an all-reduce by a named algorithm, two_shot or hierarchical: weights of the parts that the ranks, or the hosts,
  // each own. All ranks pass the same; borrowed until the call returns. Empty: equal parts. See docs/unequal-links.md.
  std::span<const std::uint32_t> shards = {};
};

// The peer of a receive that takes a message from whoever sent one.
inline constexpr int any_rank = -1;

// Registered memory: page-aligned and zeroed, and every rank of the host reads it where it lies. Calls on it, from 16 KiB on,
// cost no copy into a stream; a send from it returns when the receiver has it all. Ranks may differ in what memory they
// pass. Freed with the last copy; until the calls under way on it are done, keep one.
class Memory {
 public:
  Memory() = default;
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_.get()), bytes_ / sizeof(T)};
  }

  Memory(std::shared_ptr<std::byte> data, std::size_t bytes) : data_(std::move(data)), bytes_(bytes) {}

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

class Communicator {
 public:
  // Joins the group that the options (by default: the environment, see options.hpp) describe. Blocks until all are
  // there. Throws invalid_argument, timeout, protocol or unavailable.
  static Communicator create(const Options& options = Options::from_environment());
  // `size` communicators of one group inside this process, one a rank, for threads.
  static std::vector<Communicator> threads(std::uint32_t size, const Options& options = {});

  Communicator();  // holds none
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();  // destroy()
  explicit operator bool() const { return impl_ != nullptr; }

  int rank() const;
  int size() const;
  std::string describe(int rank) const;             // "rank 3 (host b, 192.0.2.7:4711)"
  const std::vector<std::uint32_t>& hosts() const;  // host number of each rank, numbered by first appearance
  Counters counters() const;
  // Ok, or why this communicator has failed: a peer may say so after this rank's part of a call has ended well.
  Status status() const;

  // Every rank's output becomes the reduction of all inputs. In place: one view, or input and output of equal address.
  void all_reduce(View in_out, ReduceOp op, const CallOptions& = {});
  void all_reduce(ConstView input, View output, ReduceOp op, const CallOptions& = {});
  Work all_reduce_async(View in_out, ReduceOp op, const CallOptions& options = {}) {
    return all_reduce_async(in_out, in_out, op, options);
  }
  Work all_reduce_async(ConstView input, View output, ReduceOp op, const CallOptions& = {});

  // Input: a block for each rank. Output: the reduction of all ranks' blocks of this rank. Equal blocks
  // (input.count == size * output.count), or counts[r] elements for rank r, the same counts on all ranks. In place: the
  // output is the rank's own block of the input.
  void reduce_scatter(ConstView input, View output, ReduceOp op, const CallOptions& = {});
  void reduce_scatter(ConstView input, View output, std::span<const std::size_t> counts, ReduceOp op,
                      const CallOptions& = {});
  Work reduce_scatter_async(ConstView input, View output, ReduceOp op, const CallOptions& options = {}) {
    return reduce_scatter_async(input, output, {}, op, options);
  }
  Work reduce_scatter_async(ConstView input, View output, std::span<const std::size_t> counts, ReduceOp op,
                            const CallOptions& = {});  // empty counts: equal blocks

  // Output: the inputs of all ranks, one after another. In place: the input is the rank's own block of the output.
  void all_gather(ConstView input, View output, const CallOptions& = {});
  void all_gather(ConstView input, View output, std::span<const std::size_t> counts, const CallOptions& = {});
  Work all_gather_async(ConstView input, View output, const CallOptions& options = {}) {
    return all_gather_async(input, output, {}, options);
  }
  Work all_gather_async(ConstView input, View output, std::span<const std::size_t> counts, const CallOptions& = {});

  // The root's elements to everyone.
  void broadcast(View in_out, int root, const CallOptions& = {});
  Work broadcast_async(View in_out, int root, const CallOptions& = {});

  // The reduction of all inputs, to the root's output; the others' output is not touched and may be empty.
  void reduce(ConstView input, View output, ReduceOp op, int root, const CallOptions& = {});
  Work reduce_async(ConstView input, View output, ReduceOp op, int root, const CallOptions& = {});

  // Blocks of all ranks, to the root's output, in rank order. Equal blocks, or counts on all ranks.
  void gather(ConstView input, View output, int root, const CallOptions& = {});
  void gather(ConstView input, View output, std::span<const std::size_t> counts, int root, const CallOptions& = {});
  Work gather_async(ConstView input, View output, std::span<const std::size_t> counts, int root,
                    const CallOptions& = {});
  // The inverse: block r of the root's input to rank r's output.
  void scatter(ConstView input, View output, int root, const CallOptions& = {});
  void scatter(ConstView input, View output, std::span<const std::size_t> counts, int root, const CallOptions& = {});
  Work scatter_async(ConstView input, View output, std::span<const std::size_t> counts, int root,
                     const CallOptions& = {});

  // Block p of the input to rank p; block p of the output from rank p. Equal blocks, or send_counts[p] and
  // recv_counts[p] elements, where this rank's send_counts[p] is rank p's recv_counts[this rank]. In place (input and
  // output of equal address) it copies the input first; without memory for that it throws out_of_memory and leaves this
  // communicator as it was, while the peers wait for this rank until their deadline.
  void all_to_all(ConstView input, View output, const CallOptions& = {});
  void all_to_all(ConstView input, View output, std::span<const std::size_t> send_counts,
                  std::span<const std::size_t> recv_counts, const CallOptions& = {});
  Work all_to_all_async(ConstView input, View output, std::span<const std::size_t> send_counts,
                        std::span<const std::size_t> recv_counts, const CallOptions& = {});

  // Returns when all ranks have called it.
  void barrier(const CallOptions& = {});
  Work barrier_async(const CallOptions& = {});

  // Point to point, independent of the collectives' order. Not to oneself.
  // Matching is that of MPI (4.0, section 3.5). A message fits a receive of its sender, or of any_rank, with its tag; of the
  // receives that it fits it goes to the one that was called first, and a receive gets the first message of its sender that
  // fits it. So messages of one pair and tag arrive in order, and those of other tags never hold them up: what lies before
  // an awaited message in its stream is kept in memory until it is received, at most limits::unexpected_bytes_max (1 GiB).
  // Where messages of several ranks fit, none of them is always preferred. Count and element type must match.
  // `recv` returns the rank that the message came from.
  void send(ConstView input, int to, const CallOptions& = {});
  int recv(View output, int from, const CallOptions& = {});
  Work send_async(ConstView input, int to, const CallOptions& = {});
  Work recv_async(View output, int from, const CallOptions& = {});

  // Ranks of equal colour form a new communicator, ordered by key, then by rank here. A negative colour joins none
  // (the result is empty). Collective on this communicator.
  Communicator split(int color, int key = 0);
  // A communicator of these ranks (of this communicator, in the given order). Only they call it, with equal lists; the
  // other ranks see no traffic and need not know.
  Communicator group(std::span<const int> ranks);
  Communicator group(std::initializer_list<int> ranks) { return group(std::span(ranks.begin(), ranks.size())); }

  // Measures this group's links and reductions, agrees on them, and chooses by them from then on wherever a call says
  // Algorithm::automatic; before, figures of a typical server are assumed, but for the bandwidths of three hosts or more,
  // which the first long all-reduce has measured. Collective; nothing else may be under way.
  void tune();

  Memory allocate(std::size_t bytes);

  // Ends every operation under way and every later call with `aborted`, here and, by notice, on the peers. Any thread.
  void abort(const std::string& why = "abort() was called");
  // Local and idempotent; ends what is under way. Later calls throw `closed` (or why it had failed before), but for
  // rank, size, describe, hosts, counters, status and destroy.
  void destroy();

  struct Impl;

 private:
  friend struct Inspector;  // of the library itself
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradsync
