#include "train/exchange.hpp"

#include "base/status.hpp"
#include "train/slices.hpp"

namespace gradsync {
namespace {

// Messages up to this size go to everyone at once; the sums are those of two_shot.
constexpr std::size_t kOneShotBytes = 16u << 10;

CallOptions reduce_options(const Route& route, const View& memory) {
  CallOptions options;
  if (!route.deterministic) return options;
  options.algorithm = memory.count * size_of(memory.dtype) <= kOneShotBytes ? Algorithm::one_shot : Algorithm::two_shot;
  return options;
}

View part(const View& whole, std::uint64_t begin, std::uint64_t count) {
  return {static_cast<std::byte*>(whole.data) + begin * size_of(whole.dtype), count, whole.dtype};
}

void launch_hooked(const Route& route, const Cargo& cargo, Flight& flight) {
  const std::uint32_t header = cargo.bucket->header_elements;
  if (header > 0 && route.world > 1)
    flight.reduce = cargo.lane->all_reduce_async(part(cargo.memory, 0, header), ReduceOp::avg);
  GradientBucket bucket;
  bucket.index = cargo.item;
  bucket.gradients = part(cargo.memory, header, cargo.memory.count - header);
  for (const BucketPiece& piece : cargo.bucket->pieces) bucket.parameters.push_back(piece.parameter);
  bucket.communicator = cargo.lane;
  bucket.last = cargo.last;
  flight.hooked = (*route.hook)(bucket);
}

void launch_reduce_scatter(const Route& route, const Cargo& cargo, Flight& flight) {
  const Slice mine = slice_of(*cargo.bucket, route.world, route.rank);
  CallOptions options;
  if (route.deterministic) options.algorithm = Algorithm::direct;
  flight.reduce = cargo.lane->reduce_scatter_async(cargo.memory, part(cargo.memory, mine.begin, mine.count),
                                                   slices_of(*cargo.bucket, route.world), ReduceOp::avg, options);
}

template <class Body>
Status caught(Body&& body) {
  try {
    body();
  } catch (const Error& error) { return error.status(); } catch (const std::exception& error) {
    return failure(ErrorCode::internal, "a bucket's hook threw: {}", error.what());
  } catch (...) { return failure(ErrorCode::internal, "a bucket's hook threw something that is no std::exception"); }
  return {};
}

}  // namespace

void launch(const Route& route, const Cargo& cargo, Flight& flight) {
  flight.launched = time_now();
  if (route.hook && *route.hook) return launch_hooked(route, cargo, flight);
  if (route.world == 1) {
    flight.done = flight.launched;
    return;
  }
  if (route.halves) return launch_reduce_scatter(route, cargo, flight);
  flight.reduce = cargo.lane->all_reduce_async(cargo.memory, ReduceOp::avg, reduce_options(route, cargo.memory));
}

void launch_gather(const Route& route, const Cargo& cargo, Flight& flight) {
  if (!route.halves || route.world == 1) return;
  const Slice mine = slice_of(*cargo.bucket, route.world, route.rank);
  flight.gather = cargo.lane->all_gather_async(part(cargo.memory, mine.begin, mine.count), cargo.memory,
                                               slices_of(*cargo.bucket, route.world));
}

Status finish_reduce(const Route& route, Flight& flight) {
  if (Status status = caught([&] { flight.reduce.wait(); }); !status.ok()) return status;
  if (route.halves && flight.reduced == TimePoint{}) flight.reduced = end_of(flight.reduce);
  return {};
}

Status finish_flight(const Route& route, Flight& flight) {
  if (Status status = finish_reduce(route, flight); !status.ok()) return status;
  Status status = caught([&] {
    if (flight.hooked) flight.hooked->wait();
    flight.gather.wait();
  });
  if (status.ok() && flight.done == TimePoint{})
    flight.done = flight.gather.valid()                     ? end_of(flight.gather)
                  : flight.reduce.valid() && !flight.hooked ? end_of(flight.reduce)
                                                            : time_now();
  return status;
}

bool is_done(Flight& flight) {
  if (!flight.reduce.done() || !flight.gather.done()) return false;
  return !flight.hooked || flight.hooked->done();
}

}  // namespace gradsync
