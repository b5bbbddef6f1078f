#include "collectives/call.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/status.hpp"

namespace gradsync::test {
namespace {

std::size_t elements_of(std::span<const Stretch> stretches) {
  std::size_t elements = 0;
  for (const Stretch& stretch : stretches) elements += stretch.count;
  return elements;
}

void write(std::span<const Stretch> stretches, const Call& call, std::byte* into) {
  for (const Stretch& stretch : stretches) {
    stretch.pattern->write(into, call.salt, stretch.position, stretch.count);
    into += stretch.count * size_of(call.dtype);
  }
}

// Elements [first, end) of what the stretches describe, which begin at `data`.
std::string compare(std::span<const Stretch> stretches, const Call& call, const std::byte* data, std::size_t first,
                    std::size_t end, const char* what) {
  std::size_t begin = 0;
  for (const Stretch& s : stretches) {
    const std::size_t from = std::max(first, begin), until = std::min(end, begin + s.count);
    const std::size_t at = s.position + (from - begin);
    const std::byte* got = data + from * size_of(call.dtype);
    const auto wrong = from < until ? s.pattern->difference(got, call.salt, at, until - from) : std::nullopt;
    if (wrong) {
      Bits found = 0;
      std::memcpy(&found, got + (*wrong - at) * size_of(call.dtype), size_of(call.dtype));
      return fmt::format("{}: element {} has bits {:#x}, expected {:#x}", what, from + *wrong - at, found,
                         s.pattern->bits(call.salt, *wrong));
    }
    begin += s.count;
  }
  return {};
}

}  // namespace

std::string Caller::make(const Call& call, const Sources& sources) {
  const auto rank = static_cast<std::uint32_t>(comm_.rank()), size = static_cast<std::uint32_t>(comm_.size());
  const Roles roles = roles_of(call, rank, size, sources);
  const std::size_t element = size_of(call.dtype), odd = 1 + 2 * (call.salt % 8);
  const bool broadcast = call.collective == Collective::broadcast;
  // Ranks that have only one side are in place with nothing.
  const bool one_memory = broadcast || (call.in_place && roles.input_count > 0 && roles.output_count > 0);
  input_.prepare(one_memory ? roles.total : roles.input_count, element, odd);
  // A rank that is not the root passes an output that must stay untouched, or none when in place.
  const bool to_root = call.collective == Collective::reduce || call.collective == Collective::gather;
  const bool decoy = to_root && comm_.rank() != call.root && !call.in_place;
  const std::size_t output_room = decoy ? call.count : roles.output_count;
  output_.prepare(one_memory ? 0 : output_room, element, (odd + 2) % 16);
  std::byte* in = input_.data() + (one_memory ? roles.input_first * element : 0);
  std::byte* out = one_memory ? input_.data() + roles.output_first * element : output_.data();
  GRADSYNC_CHECK(elements_of(roles.input) == roles.input_count);
  write(roles.input, call, in);
  run(call, roles, ConstView(in, roles.input_count, call.dtype),
      View{out, one_memory ? roles.output_count : output_room, call.dtype});
  result_ = out;
  result_bytes_ = roles.output_count * element;
  if (decoy && !Guarded::untouched(out, output_room * element))
    return "the output of a rank that is not root was written";
  return check(call, roles, in, out, one_memory);
}

std::string Caller::check(const Call& call, const Roles& roles, std::byte* in, std::byte* out, bool one_memory) {
  if (!input_.intact()) return "the guard around the input was written";
  if (!output_.intact()) return "the guard around the output was written";
  std::string wrong = compare(roles.output, call, out, 0, roles.output_count, "output");
  if (!wrong.empty()) return wrong;
  if (!one_memory) return compare(roles.input, call, in, 0, roles.input_count, "input was changed");
  // In place: what belongs to the input alone, before and behind the output.
  const std::size_t first = roles.input_first, last = first + roles.input_count;
  const std::size_t cut = std::min(last, std::max(first, roles.output_first)) - first;
  const std::size_t rest = std::min(last, std::max(first, roles.output_first + roles.output_count)) - first;
  wrong = compare(roles.input, call, in, 0, cut, "input before the output was changed");
  return wrong.empty() ? compare(roles.input, call, in, rest, roles.input_count, "input behind the output was changed")
                       : wrong;
}

void Caller::run(const Call& call, const Roles& roles, ConstView in, View out) {
  const CallOptions options{.algorithm = call.algorithm, .segments = call.segments};
  // Only the asynchronous forms of gather and scatter take counts.
  const bool uneven = !roles.counts.empty();
  const bool only_async = call.collective == Collective::send ||
                          (uneven && (call.collective == Collective::gather || call.collective == Collective::scatter));
  if (only_async || call.salt % 5 == 0) return run_async(call, roles, in, out);
  switch (call.collective) {
    case Collective::all_reduce:
      if (in.data == out.data) return comm_.all_reduce(out, call.op, options);
      return comm_.all_reduce(in, out, call.op, options);
    case Collective::reduce_scatter:
      if (uneven) return comm_.reduce_scatter(in, out, roles.counts, call.op, options);
      return comm_.reduce_scatter(in, out, call.op, options);
    case Collective::all_gather:
      if (uneven) return comm_.all_gather(in, out, roles.counts, options);
      return comm_.all_gather(in, out, options);
    case Collective::broadcast: return comm_.broadcast(out, call.root, options);
    case Collective::reduce: return comm_.reduce(in, out, call.op, call.root, options);
    case Collective::gather: return comm_.gather(in, out, call.root, options);
    case Collective::scatter: return comm_.scatter(in, out, call.root, options);
    case Collective::all_to_all:
      if (uneven) return comm_.all_to_all(in, out, roles.counts, roles.recv_counts, options);
      return comm_.all_to_all(in, out, options);
    default: GRADSYNC_CHECK(false && "a collective that has no data");
  }
}

void Caller::run_async(const Call& call, const Roles& roles, ConstView in, View out) {
  const CallOptions options{.algorithm = call.algorithm, .segments = call.segments};
  const int rank = comm_.rank(), size = comm_.size();
  switch (call.collective) {
    case Collective::all_reduce: return comm_.all_reduce_async(in, out, call.op, options).wait();
    case Collective::reduce_scatter: return comm_.reduce_scatter_async(in, out, roles.counts, call.op, options).wait();
    case Collective::all_gather: return comm_.all_gather_async(in, out, roles.counts, options).wait();
    case Collective::broadcast: return comm_.broadcast_async(out, call.root, options).wait();
    case Collective::reduce: return comm_.reduce_async(in, out, call.op, call.root, options).wait();
    case Collective::gather: return comm_.gather_async(in, out, roles.counts, call.root, options).wait();
    case Collective::scatter: return comm_.scatter_async(in, out, roles.counts, call.root, options).wait();
    case Collective::all_to_all:
      return comm_.all_to_all_async(in, out, roles.counts, roles.recv_counts, options).wait();
    case Collective::send: {  // around the circle
      Work sent = comm_.send_async(in, (rank + 1) % size, options);
      comm_.recv(out, (rank + size - 1) % size, options);
      return sent.wait();
    }
    default: GRADSYNC_CHECK(false && "a collective that has no data");
  }
}

}  // namespace gradsync::test
