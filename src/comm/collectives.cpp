// The calls of a communicator, one after another: what each asks for.
#include "comm/communicator_impl.hpp"

namespace gradsync {

namespace {

using Counts = std::span<const std::size_t>;

Asked all_reduce_of(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  return {.collective = Collective::all_reduce, .input = in, .output = out, .op = op, .options = o};
}
Asked reduce_scatter_of(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  return {
      .collective = Collective::reduce_scatter, .input = in, .output = out, .op = op, .counts = counts, .options = o};
}
Asked all_gather_of(ConstView in, View out, Counts counts, const CallOptions& o) {
  return {.collective = Collective::all_gather, .input = in, .output = out, .counts = counts, .options = o};
}
Asked broadcast_of(View in_out, int root, const CallOptions& o) {
  return {.collective = Collective::broadcast, .input = in_out, .output = in_out, .root = root, .options = o};
}
Asked reduce_of(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  return {.collective = Collective::reduce, .input = in, .output = out, .op = op, .root = root, .options = o};
}
Asked rooted_of(Collective collective, ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return {.collective = collective, .input = in, .output = out, .root = root, .counts = counts, .options = o};
}
Asked all_to_all_of(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  return {.collective = Collective::all_to_all,
          .input = in,
          .output = out,
          .counts = sent,
          .recv_counts = received,
          .options = o};
}
Asked pair_of(Collective collective, ConstView in, View out, int peer, const CallOptions& o) {
  return {.collective = collective, .input = in, .output = out, .root = peer, .options = o};
}

}  // namespace

void Communicator::all_reduce(View io, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(all_reduce_of(io, io, op, o));
}
void Communicator::all_reduce(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(all_reduce_of(in, out, op, o));
}
Work Communicator::all_reduce_async(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  return alive(impl_).start(all_reduce_of(in, out, op, o));
}

void Communicator::reduce_scatter(ConstView in, View out, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(reduce_scatter_of(in, out, {}, op, o));
}
void Communicator::reduce_scatter(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  alive(impl_).run(reduce_scatter_of(in, out, counts, op, o));
}
Work Communicator::reduce_scatter_async(ConstView in, View out, Counts counts, ReduceOp op, const CallOptions& o) {
  return alive(impl_).start(reduce_scatter_of(in, out, counts, op, o));
}

void Communicator::all_gather(ConstView in, View out, const CallOptions& o) {
  alive(impl_).run(all_gather_of(in, out, {}, o));
}
void Communicator::all_gather(ConstView in, View out, Counts counts, const CallOptions& o) {
  alive(impl_).run(all_gather_of(in, out, counts, o));
}
Work Communicator::all_gather_async(ConstView in, View out, Counts counts, const CallOptions& o) {
  return alive(impl_).start(all_gather_of(in, out, counts, o));
}

void Communicator::broadcast(View io, int root, const CallOptions& o) { alive(impl_).run(broadcast_of(io, root, o)); }
Work Communicator::broadcast_async(View io, int root, const CallOptions& o) {
  return alive(impl_).start(broadcast_of(io, root, o));
}

void Communicator::reduce(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  alive(impl_).run(reduce_of(in, out, op, root, o));
}
Work Communicator::reduce_async(ConstView in, View out, ReduceOp op, int root, const CallOptions& o) {
  return alive(impl_).start(reduce_of(in, out, op, root, o));
}

void Communicator::gather(ConstView in, View out, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::gather, in, out, {}, root, o));
}
void Communicator::gather(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::gather, in, out, counts, root, o));
}
Work Communicator::gather_async(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return alive(impl_).start(rooted_of(Collective::gather, in, out, counts, root, o));
}

void Communicator::scatter(ConstView in, View out, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::scatter, in, out, {}, root, o));
}
void Communicator::scatter(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  alive(impl_).run(rooted_of(Collective::scatter, in, out, counts, root, o));
}
Work Communicator::scatter_async(ConstView in, View out, Counts counts, int root, const CallOptions& o) {
  return alive(impl_).start(rooted_of(Collective::scatter, in, out, counts, root, o));
}

void Communicator::all_to_all(ConstView in, View out, const CallOptions& o) {
  alive(impl_).run(all_to_all_of(in, out, {}, {}, o));
}
void Communicator::all_to_all(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  alive(impl_).run(all_to_all_of(in, out, sent, received, o));
}
Work Communicator::all_to_all_async(ConstView in, View out, Counts sent, Counts received, const CallOptions& o) {
  return alive(impl_).start(all_to_all_of(in, out, sent, received, o));
}

void Communicator::barrier(const CallOptions& o) {
  alive(impl_).run({.collective = Collective::barrier, .options = o});
}
Work Communicator::barrier_async(const CallOptions& o) {
  return alive(impl_).start({.collective = Collective::barrier, .options = o});
}

void Communicator::send(ConstView in, int to, const CallOptions& o) {
  alive(impl_).run(pair_of(Collective::send, in, {}, to, o));
}
int Communicator::recv(View out, int from, const CallOptions& o) {
  return alive(impl_).receive(pair_of(Collective::recv, {}, out, from, o));
}
Work Communicator::send_async(ConstView in, int to, const CallOptions& o) {
  return alive(impl_).start(pair_of(Collective::send, in, {}, to, o));
}
Work Communicator::recv_async(View out, int from, const CallOptions& o) {
  return alive(impl_).start(pair_of(Collective::recv, {}, out, from, o));
}

}  // namespace gradsync
