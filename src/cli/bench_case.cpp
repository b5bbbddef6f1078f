#include "cli/bench_case.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "schedule/layouts.hpp"

namespace gradsync::cli {
namespace {

constexpr std::byte poison{0xa5};
constexpr int root = 0;

std::int64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool is_pair(Collective c) { return c == Collective::send || c == Collective::recv; }

bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

}  // namespace

BenchCase::BenchCase(Communicator& communicator, const CaseOptions& options)
    : communicator_(communicator),
      options_(options),
      me_(static_cast<std::uint32_t>(communicator.rank())),
      world_(static_cast<std::uint32_t>(communicator.size())),
      width_(size_of(options.dtype)) {
  const std::uint64_t elements = (options.bytes + width_ - 1) / width_;
  block_ = (elements + world_ - 1) / world_;
  whole_ = has_blocks(options.collective) ? block_ * world_ : elements;
  if (options.collective == Collective::barrier) whole_ = 0;
  place();
}

// Which parts of the message this rank brings and gets, and where they lie.
void BenchCase::place() {
  const Part whole{0, whole_}, own{me_ * block_, block_}, none{};
  const bool is_root = me_ == root;
  switch (options_.collective) {
    case Collective::all_reduce:
    case Collective::all_to_all: in_ = out_ = whole; break;
    case Collective::reduce_scatter: in_ = whole, out_ = own; break;
    case Collective::all_gather: in_ = own, out_ = whole; break;
    case Collective::broadcast: in_ = is_root ? whole : none, out_ = whole; break;
    case Collective::reduce: in_ = whole, out_ = is_root ? whole : none; break;
    case Collective::gather: in_ = own, out_ = is_root ? whole : none; break;
    case Collective::scatter: in_ = is_root ? whole : none, out_ = own; break;
    case Collective::send:
    case Collective::recv:
      if (me_ % 2 == 1) out_ = whole;
      else if (me_ + 1 < world_) in_ = whole;
      break;
    case Collective::barrier: break;
  }
  const bool one_memory = options_.in_place || options_.collective == Collective::broadcast;
  memory_ = room(0, one_memory ? static_cast<std::size_t>(whole_ * width_) : part_bytes(in_));
  output_memory_ = room(1, one_memory ? 0 : part_bytes(out_));
  input_ = memory_.data() + (one_memory ? in_.first * width_ : 0);
  output_ = one_memory ? memory_.data() + out_.first * width_ : output_memory_.data();
}

std::span<std::byte> BenchCase::room(std::size_t which, std::size_t bytes) {
  if (options_.registered) {
    registered_[which] = communicator_.allocate(bytes);
    return registered_[which].as<std::byte>();
  }
  ordinary_[which].resize(bytes);
  return ordinary_[which];
}

void BenchCase::call() {
  CallOptions how;
  how.algorithm = options_.algorithm;
  how.segments = options_.segments;
  how.shards = options_.shards;
  const ConstView input(input_, static_cast<std::size_t>(in_.count), options_.dtype);
  const View output{output_, static_cast<std::size_t>(out_.count), options_.dtype};
  Communicator& c = communicator_;
  switch (options_.collective) {
    case Collective::all_reduce: c.all_reduce(input, output, options_.op, how); break;
    case Collective::reduce_scatter: c.reduce_scatter(input, output, options_.op, how); break;
    case Collective::all_gather: c.all_gather(input, output, how); break;
    case Collective::broadcast: c.broadcast(output, root, how); break;
    case Collective::reduce: c.reduce(input, output, options_.op, root, how); break;
    case Collective::gather: c.gather(input, output, root, how); break;
    case Collective::scatter: c.scatter(input, output, root, how); break;
    case Collective::all_to_all: c.all_to_all(input, output, how); break;
    case Collective::barrier: c.barrier(how); break;
    case Collective::send:
    case Collective::recv:
      if (me_ % 2 == 1) c.recv(output, static_cast<int>(me_) - 1);
      else if (me_ + 1 < world_) c.send(input, static_cast<int>(me_) + 1);
      break;
  }
}

void BenchCase::fill_input() {
  std::ranges::fill(memory_, poison);
  std::ranges::fill(output_memory_, poison);
  Pattern::of_rank(options_.dtype, options_.op, me_, world_).fill(bytes_of_input(), in_.first);
}

bool BenchCase::input_unchanged() const {
  if (output_memory_.empty()) return true;  // it may have been overwritten, or there is no output
  return Pattern::of_rank(options_.dtype, options_.op, me_, world_).equals(bytes_of_input(), in_.first);
}

bool BenchCase::output_right() const {
  const auto brought_by = [&](std::uint32_t rank) {
    return Pattern::of_rank(options_.dtype, options_.op, rank, world_);
  };
  if (out_.count == 0) return true;
  if (reduces(options_.collective))
    return Pattern::reduced(options_.dtype, options_.op, world_).equals(bytes_of_output(), out_.first);
  if (is_pair(options_.collective)) return brought_by(me_ - 1).equals(bytes_of_output(), 0);
  if (options_.collective == Collective::broadcast || options_.collective == Collective::scatter)
    return brought_by(root).equals(bytes_of_output(), out_.first);
  const std::size_t block_bytes = static_cast<std::size_t>(block_ * width_);
  for (std::uint32_t r = 0; r < world_; ++r) {
    const std::uint32_t source_block = options_.collective == Collective::all_to_all ? me_ : r;
    if (!brought_by(r).equals(bytes_of_output().subspan(r * block_bytes, block_bytes), source_block * block_))
      return false;
  }
  return true;
}

bool BenchCase::check() {
  fill_input();
  call();
  return output_right() && input_unchanged();
}

Timing BenchCase::time(std::uint32_t iterations) {
  Timing timing;
  timing.start_ns.resize(iterations);
  timing.end_ns.resize(iterations);
  for (std::uint32_t i = 0; i < iterations; ++i) {
    communicator_.barrier();
    const std::int64_t cpu_start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    timing.start_ns[i] = clock_ns(CLOCK_MONOTONIC);
    call();
    timing.end_ns[i] = clock_ns(CLOCK_MONOTONIC);
    timing.cpu_ns += clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
  }
  return timing;
}

}  // namespace gradsync::cli
