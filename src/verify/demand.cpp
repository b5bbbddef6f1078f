#include "verify/demand.hpp"

#include <optional>

#include "schedule/layouts.hpp"

namespace gradsync {
namespace {

struct Windows {
  std::optional<Window> input;  // nothing: any, the collective does not read it
  Window output;
};

Windows windows_of(const Recipe& recipe, const Shape& shape, std::uint32_t rank) {
  const Window all{0, shape.chunks}, none{};
  const bool root = rank == recipe.root;
  const std::uint32_t per = shape.chunks / recipe.world;
  const Window own{rank * per, per};
  switch (recipe.collective) {
    case Collective::all_reduce:
    case Collective::barrier: return {all, all};
    case Collective::reduce_scatter: return {all, own};
    case Collective::all_gather: return {own, all};
    case Collective::broadcast: return {root ? std::optional(all) : std::nullopt, all};
    case Collective::reduce: return {all, root ? all : none};
    case Collective::gather: return {own, root ? all : none};
    case Collective::scatter: return {root ? std::optional(all) : std::nullopt, own};
    case Collective::send: return {all, none};
    case Collective::recv: return {std::nullopt, all};
    case Collective::all_to_all: break;  // see check_shape
  }
  return {shape.input, shape.output};
}

Status wrong(const Recipe& recipe, std::uint32_t rank, std::string_view space, Window found, Window expected) {
  return failure(ErrorCode::invalid_argument, "{} rank {}: {} is chunks {}+{}, expected {}+{}",
                 name_of(recipe.collective), rank, space, found.first, found.count, expected.first, expected.count);
}

}  // namespace

Demand demand_of(const Recipe& recipe, const Shape& shape, std::uint32_t rank, std::uint32_t output_chunk) {
  const std::uint32_t chunk = shape.message_chunk(Space::output, output_chunk);
  switch (recipe.collective) {
    case Collective::all_reduce:
    case Collective::barrier:
    case Collective::reduce_scatter:
    case Collective::reduce: return {chunk, Demand::everyone};
    case Collective::all_gather:
    case Collective::gather: return {chunk, chunk / (shape.chunks / recipe.world)};
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::send:
    case Collective::recv: return {chunk, recipe.root};
    case Collective::all_to_all: break;
  }
  const std::uint32_t per = shape.input.count / recipe.world;
  return {shape.input.first + rank * per + output_chunk % per, output_chunk / per};
}

Status check_shape(const Recipe& recipe, const Shape& shape, std::uint32_t rank) {
  if (shape.chunks == 0) return failure(ErrorCode::invalid_argument, "rank {}: the message has no chunks", rank);
  if (recipe.collective == Collective::all_to_all) {
    if (shape.input.count == 0 || shape.input.count % recipe.world != 0 || shape.input.count != shape.output.count)
      return failure(ErrorCode::invalid_argument,
                     "all_to_all rank {}: input has {} chunks and output {}, expected equal multiples of {}", rank,
                     shape.input.count, shape.output.count, recipe.world);
  } else if (has_blocks(recipe.collective) && shape.chunks % recipe.world != 0) {
    return failure(ErrorCode::invalid_argument, "{} rank {}: the message has {} chunks, expected a multiple of {}",
                   name_of(recipe.collective), rank, shape.chunks, recipe.world);
  }
  const Windows expected = windows_of(recipe, shape, rank);
  if (expected.input && shape.input != *expected.input)
    return wrong(recipe, rank, "input", shape.input, *expected.input);
  if (shape.output.count != expected.output.count ||
      (shape.output.count > 0 && shape.output.first != expected.output.first))
    return wrong(recipe, rank, "output", shape.output, expected.output);
  const auto inside = [&](Window w) { return w.first <= shape.chunks && w.count <= shape.chunks - w.first; };
  if (!inside(shape.input)) return wrong(recipe, rank, "input", shape.input, {0, shape.chunks});
  if (!inside(shape.output)) return wrong(recipe, rank, "output", shape.output, {0, shape.chunks});
  return {};
}

}  // namespace gradsync
