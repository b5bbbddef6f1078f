#include "c/calls.hpp"

#include <limits>

#include "c/handles.hpp"
#include "c/numbers.hpp"
#include "c/structs.hpp"

namespace gradsync::c {
namespace {

bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

// Too large a sum stays too large, and is refused where limits are known.
std::size_t sum(std::size_t a, std::size_t b) {
  std::size_t both = 0;
  return __builtin_add_overflow(a, b, &both) ? std::numeric_limits<std::size_t>::max() : both;
}
std::size_t sum(std::span<const std::size_t> counts) {
  std::size_t all = 0;
  for (std::size_t count : counts) all = sum(all, count);
  return all;
}
std::size_t times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::size_t>::max() : product;
}

struct Sides {
  std::size_t input = 0, output = 0;
};
Sides sides_of(const Wanted& wanted, std::size_t mine, std::size_t all) {
  switch (wanted.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter: return {all, mine};
    case Collective::all_gather:
    case Collective::gather: return {mine, all};
    case Collective::all_to_all: return {all, all};
    case Collective::send: return {mine, 0};
    case Collective::recv: return {0, mine};
    case Collective::barrier: return {};
    default: return {mine, mine};
  }
}

Call call_of(const Communicator& comm, const Wanted& wanted, const gradsync_call_options* options) {
  const auto size = static_cast<std::size_t>(comm.size()), rank = static_cast<std::size_t>(comm.rank());
  Call call{.collective = wanted.collective, .root = wanted.root, .options = call_options_of(options)};
  Sides sides = sides_of(wanted, wanted.count, times(wanted.count, size));
  if (wanted.uneven) {
    require(wanted.counts, wanted.collective == Collective::all_to_all ? "send_counts" : "counts");
    call.counts = {wanted.counts, size};
    sides = sides_of(wanted, wanted.counts[rank], sum(call.counts));
  }
  if (wanted.uneven && wanted.collective == Collective::all_to_all) {
    require(wanted.recv_counts, "recv_counts");
    call.recv_counts = {wanted.recv_counts, size};
    sides.output = sum(call.recv_counts);
  }
  const DType dtype = dtype_of(wanted.dtype);
  if (reduces(wanted.collective)) call.op = op_of(wanted.op);
  call.input = ConstView(wanted.input, sides.input, dtype);
  call.output = View{wanted.output, sides.output, dtype};
  return call;
}

View view_of(const char* name, const gradsync_view& view) {
  if (view.reserved != 0)
    refuse(ErrorCode::unsupported, "gradsync_call.{}.reserved is {}, expected 0", name, view.reserved);
  return {view.data, view.count, dtype_of(view.dtype)};
}

Call call_of(const gradsync_call* given) {
  require(given, "the call");
  const gradsync_call wanted = read_struct("gradsync_call", given, gradsync_call{});
  Call call{.collective = collective_of(wanted.collective),
            .input = view_of("input", wanted.input),
            .output = view_of("output", wanted.output),
            .root = wanted.root,
            .options = call_options_of(wanted.options)};
  if (reduces(call.collective)) call.op = op_of(wanted.op);
  if (wanted.counts_length == 0) return call;
  require(wanted.counts, "gradsync_call.counts");
  call.counts = {wanted.counts, wanted.counts_length};
  if (call.collective == Collective::all_to_all) {
    require(wanted.recv_counts, "gradsync_call.recv_counts");
    call.recv_counts = {wanted.recv_counts, wanted.counts_length};
  }
  return call;
}

void start_into(Communicator& comm, const Call& call, gradsync_work** work) {
  require(work, "the address for the work");
  *work = hand_out<gradsync_work>(start(comm, call));
}

}  // namespace

CallOptions call_options_of(const gradsync_call_options* given) {
  CallOptions options;
  if (given == nullptr) return options;
  const gradsync_call_options wanted =
      read_struct("gradsync_call_options", given, gradsync_call_options GRADSYNC_CALL_OPTIONS_INIT);
  if ((wanted.flags & ~GRADSYNC_MOVED_BY_WAITER) != 0)
    refuse(ErrorCode::unsupported, "gradsync_call_options.flags is {:#x}, known is GRADSYNC_MOVED_BY_WAITER, {:#x}",
           wanted.flags, GRADSYNC_MOVED_BY_WAITER);
  options.algorithm = algorithm_of(wanted.algorithm);
  options.segments = wanted.segments;
  options.tag = wanted.tag;
  options.moved_by_waiter = (wanted.flags & GRADSYNC_MOVED_BY_WAITER) != 0;
  if (wanted.timeout_ns != 0) options.timeout = std::chrono::nanoseconds(wanted.timeout_ns);
  return options;
}

void run(Communicator& comm, const Call& c) {
  switch (c.collective) {
    case Collective::all_reduce: return comm.all_reduce(c.input, c.output, c.op, c.options);
    case Collective::reduce_scatter: return comm.reduce_scatter(c.input, c.output, c.counts, c.op, c.options);
    case Collective::all_gather: return comm.all_gather(c.input, c.output, c.counts, c.options);
    case Collective::broadcast: return comm.broadcast(c.output, c.root, c.options);
    case Collective::reduce: return comm.reduce(c.input, c.output, c.op, c.root, c.options);
    case Collective::gather: return comm.gather(c.input, c.output, c.counts, c.root, c.options);
    case Collective::scatter: return comm.scatter(c.input, c.output, c.counts, c.root, c.options);
    case Collective::all_to_all: return comm.all_to_all(c.input, c.output, c.counts, c.recv_counts, c.options);
    case Collective::barrier: return comm.barrier(c.options);
    case Collective::send: return comm.send(c.input, c.root, c.options);
    case Collective::recv: return static_cast<void>(comm.recv(c.output, c.root, c.options));
  }
}

Work start(Communicator& comm, const Call& c) {
  switch (c.collective) {
    case Collective::all_reduce: return comm.all_reduce_async(c.input, c.output, c.op, c.options);
    case Collective::reduce_scatter: return comm.reduce_scatter_async(c.input, c.output, c.counts, c.op, c.options);
    case Collective::all_gather: return comm.all_gather_async(c.input, c.output, c.counts, c.options);
    case Collective::broadcast: return comm.broadcast_async(c.output, c.root, c.options);
    case Collective::reduce: return comm.reduce_async(c.input, c.output, c.op, c.root, c.options);
    case Collective::gather: return comm.gather_async(c.input, c.output, c.counts, c.root, c.options);
    case Collective::scatter: return comm.scatter_async(c.input, c.output, c.counts, c.root, c.options);
    case Collective::all_to_all: return comm.all_to_all_async(c.input, c.output, c.counts, c.recv_counts, c.options);
    case Collective::barrier: return comm.barrier_async(c.options);
    case Collective::send: return comm.send_async(c.input, c.root, c.options);
    case Collective::recv: return comm.recv_async(c.output, c.root, c.options);
  }
  return {};
}

gradsync_code run(const char* function, gradsync_comm* comm, const Wanted& wanted,
                  const gradsync_call_options* options) {
  return guarded(function, [&] {
    const auto communicator = behind(comm);
    run(*communicator, call_of(*communicator, wanted, options));
  });
}

gradsync_code start(const char* function, gradsync_comm* comm, const Wanted& wanted,
                    const gradsync_call_options* options, gradsync_work** work) {
  return guarded(function, [&] {
    const auto communicator = behind(comm);
    start_into(*communicator, call_of(*communicator, wanted, options), work);
  });
}

}  // namespace gradsync::c

using namespace gradsync::c;

extern "C" {

gradsync_code gradsync_run(gradsync_comm* comm, const gradsync_call* call) {
  return guarded(__func__, [&] {
    const auto communicator = behind(comm);
    run(*communicator, call_of(call));
  });
}

gradsync_code gradsync_start(gradsync_comm* comm, const gradsync_call* call, gradsync_work** work) {
  return guarded(__func__, [&] {
    const auto communicator = behind(comm);
    start_into(*communicator, call_of(call), work);
  });
}

}  // extern "C"
