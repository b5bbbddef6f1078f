#include "verify/check_step.hpp"

#include "schedule/cursor.hpp"
#include "schedule/layouts.hpp"

namespace gradsync {
namespace {

Status check_range(const Shape& shape, Space space, Range range) {
  if (range.count == 0) return failure(ErrorCode::invalid_argument, "the range is empty");
  if (range.first < shape.size(space) && range.count <= shape.cycle(space)) return {};
  return failure(ErrorCode::out_of_range, "chunks {}+{} lie outside {}, which has {}", range.first, range.count,
                 name_of_space(space), shape.size(space));
}

Status check_local(const Step& step, const Shape& shape, bool same_message_chunks) {
  if (Status status = check_range(shape, step.source_space, step.source_range()); !status.ok()) return status;
  if (same_message_chunks) {
    if (same_chunks(shape, step.source_space, shape, step.space, step.source, step.first, step.count)) return {};
    return failure(ErrorCode::invalid_argument, "source and target are different chunks of the message");
  }
  Step read = step;
  read.verb = Verb::send;
  read.space = step.source_space;
  read.first = step.source;
  if (hazard_between(read, Step{step.first, step.count, 0, 0, Verb::recv, step.mode, step.space}, shape,
                     Aliasing::none))
    return failure(ErrorCode::invalid_argument, "source and target overlap");
  return {};
}

}  // namespace

std::string_view name_of_space(Space space) {
  if (space == Space::input) return "input";
  return space == Space::output ? "output" : "scratch";
}

std::string describe(const Step& step) {
  const bool combine = step.mode == Mode::combine;
  const auto place = name_of_space(step.space);
  if (step.verb == Verb::send)
    return fmt::format("send of {} chunks of {} {} to rank {}", step.count, place, step.first, step.peer);
  if (step.verb == Verb::recv)
    return fmt::format("{} of {} chunks from rank {} into {} {}", combine ? "recv_reduce" : "recv", step.count,
                       step.peer, place, step.first);
  return fmt::format("{} of {} chunks from {} {} into {} {}", combine ? "reduce" : "copy", step.count,
                     name_of_space(step.source_space), step.source, place, step.first);
}

Status check_step(const Step& step, const Shape& shape, std::uint32_t rank, std::uint32_t world,
                  bool same_message_chunks) {
  if (Status status = check_range(shape, step.space, step.range()); !status.ok()) return status;
  if (step.writes() && step.space == Space::input) return failure(ErrorCode::invalid_argument, "writes the input");
  if (step.verb == Verb::local) return check_local(step, shape, same_message_chunks);
  if (step.peer >= world)
    return failure(ErrorCode::out_of_range, "there is no rank {} in a world of {}", step.peer, world);
  if (step.peer == rank) return failure(ErrorCode::invalid_argument, "the peer is the rank itself");
  if (step.verb == Verb::send && step.mode != Mode::assign)
    return failure(ErrorCode::invalid_argument, "a send cannot combine");
  return {};
}

bool same_chunks(const Shape& a, Space space_a, const Shape& b, Space space_b, std::uint32_t first_a,
                 std::uint32_t first_b, std::uint32_t count) {
  // Both walk on by one until their cycle wraps; compare where either of them starts anew.
  std::uint32_t at = 0;
  while (at < count) {
    const std::uint32_t i = a.chunk(space_a, first_a, at), j = b.chunk(space_b, first_b, at);
    if (a.message_chunk(space_a, i) != b.message_chunk(space_b, j)) return false;
    const std::uint32_t left_a = a.cycle(space_a) - i % a.cycle(space_a),
                        left_b = b.cycle(space_b) - j % b.cycle(space_b);
    at += left_a < left_b ? left_a : left_b;
  }
  return true;
}

}  // namespace gradsync
