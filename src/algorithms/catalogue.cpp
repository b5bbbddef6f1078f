#include "algorithms/catalogue.hpp"

#include <array>
#include <string>

#include "algorithms/generators.hpp"
#include "base/limits.hpp"

namespace gradsync {

std::uint32_t one_chunk(const Recipe&) { return 1; }
std::uint32_t chunk_a_rank(const Recipe& recipe) { return recipe.world; }
std::uint32_t chunk_a_segment(const Recipe& recipe) { return recipe.segments; }
std::uint32_t no_scratch(const Recipe&, std::uint32_t) { return 0; }
std::uint32_t scratch_from_third_rank(const Recipe&, std::uint32_t rank) { return rank >= 2 ? 1 : 0; }

namespace {

struct Generator {
  CountOf* chunks;
  ScratchOf* scratch;
  StepsOf* steps;
};

struct Line {
  CatalogueEntry entry;
  Generator generator;
};

constexpr CatalogueEntry entry(Collective collective, Algorithm algorithm) {
  return {collective, algorithm, false, false};
}
constexpr CatalogueEntry log_step(Collective collective, Algorithm algorithm) {
  return {collective, algorithm, false, true};
}
constexpr CatalogueEntry segmented(Collective collective, Algorithm algorithm) {
  return {collective, algorithm, true, false};
}
constexpr CatalogueEntry pipeline(Collective collective, Algorithm algorithm) {
  return {collective, algorithm, true, true};
}

using enum Collective;
using A = Algorithm;

constexpr Line kLines[] = {
    {entry(all_reduce, A::flat), {one_chunk, no_scratch, flat_all_reduce}},
    {entry(all_reduce, A::ring), {chunk_a_rank, no_scratch, ring_all_reduce}},
    {log_step(all_reduce, A::recursive_doubling), {one_chunk, no_scratch, recursive_doubling_all_reduce}},
    {log_step(all_reduce, A::halving_doubling), {halving_doubling_chunks, no_scratch, halving_doubling_all_reduce}},
    {log_step(all_reduce, A::circulant), {chunk_a_rank, no_scratch, circulant_all_reduce}},
    {entry(all_reduce, A::one_shot), {one_chunk, scratch_from_third_rank, one_shot_all_reduce}},
    {segmented(all_reduce, A::two_shot), {two_shot_chunks, scratch_from_third_rank, two_shot_all_reduce}},
    {pipeline(all_reduce, A::tree), {chunk_a_segment, no_scratch, tree_all_reduce}},
    {pipeline(all_reduce, A::double_tree), {double_tree_chunks, no_scratch, double_tree_all_reduce}},
    {segmented(all_reduce, A::hierarchical), {hierarchical_chunks, hierarchical_scratch, hierarchical_all_reduce}},
    {entry(reduce_scatter, A::ring), {chunk_a_rank, ring_reduce_scatter_scratch, ring_reduce_scatter_alone}},
    {log_step(reduce_scatter, A::circulant),
     {chunk_a_rank, ring_reduce_scatter_scratch, circulant_reduce_scatter_alone}},
    {entry(reduce_scatter, A::direct), {chunk_a_rank, scratch_from_third_rank, direct_reduce_scatter_alone}},
    {entry(all_gather, A::ring), {chunk_a_rank, no_scratch, ring_all_gather_alone}},
    {log_step(all_gather, A::circulant), {chunk_a_rank, no_scratch, circulant_all_gather_alone}},
    {entry(all_gather, A::direct), {chunk_a_rank, no_scratch, direct_all_gather_alone}},
    {entry(broadcast, A::flat), {one_chunk, no_scratch, flat_broadcast}},
    {pipeline(broadcast, A::tree), {chunk_a_segment, no_scratch, tree_broadcast}},
    {entry(reduce, A::flat), {one_chunk, flat_reduce_scratch, flat_reduce}},
    {pipeline(reduce, A::tree), {chunk_a_segment, tree_scratch, tree_reduce}},
    {entry(gather, A::flat), {chunk_a_rank, no_scratch, flat_gather}},
    {log_step(gather, A::tree), {chunk_a_rank, tree_scratch, tree_gather}},
    {entry(scatter, A::flat), {chunk_a_rank, no_scratch, flat_scatter}},
    {log_step(scatter, A::tree), {chunk_a_rank, tree_scratch, tree_scatter}},
    {entry(all_to_all, A::direct), {chunk_a_rank, no_scratch, direct_all_to_all}},
    {log_step(barrier, A::recursive_doubling), {one_chunk, no_scratch, recursive_doubling_all_reduce}},
    {entry(send, A::direct), {one_chunk, no_scratch, direct_send}},
    {entry(recv, A::direct), {one_chunk, no_scratch, direct_recv}},
};
constexpr std::size_t kLineCount = std::size(kLines);

constexpr auto kEntries = [] {
  std::array<CatalogueEntry, kLineCount> entries{};
  for (std::size_t i = 0; i < kLineCount; ++i) entries[i] = kLines[i].entry;
  return entries;
}();

const Line* find_line(Collective collective, Algorithm algorithm) {
  for (const Line& line : kLines)
    if (line.entry.collective == collective && line.entry.algorithm == algorithm) return &line;
  return nullptr;
}

const Generator& generator_of(const Recipe& recipe) {
  const Line* line = find_line(recipe.collective, recipe.algorithm);
  GRADSYNC_CHECK(line != nullptr);
  return line->generator;
}

bool has_root(Collective collective) {
  return collective == broadcast || collective == reduce || collective == gather || collective == scatter;
}

// The windows of input and output, from the meaning of the collective alone.
Shape frame_of(const Recipe& recipe, std::uint32_t rank, std::uint32_t chunks) {
  const std::uint32_t block_chunks = chunks / recipe.world;
  const Window whole{0, chunks}, none{0, 0}, block{rank * block_chunks, block_chunks};
  const bool at_root = rank == recipe.root;
  switch (recipe.collective) {
    case all_reduce:
    case all_to_all:
    case barrier: return {chunks, whole, whole, 0};
    case reduce_scatter: return {chunks, whole, block, 0};
    case all_gather: return {chunks, block, whole, 0};
    case broadcast: return {chunks, at_root ? whole : none, whole, 0};
    case reduce: return {chunks, whole, at_root ? whole : none, 0};
    case gather: return {chunks, block, at_root ? whole : none, 0};
    case scatter: return {chunks, at_root ? whole : none, block, 0};
    case send: return {chunks, at_root ? none : whole, none, 0};
    case recv: return {chunks, none, at_root ? none : whole, 0};
  }
  return {};
}

}  // namespace

std::span<const CatalogueEntry> catalogue() { return kEntries; }

const CatalogueEntry* find_in_catalogue(Collective collective, Algorithm algorithm) {
  const Line* line = find_line(collective, algorithm);
  return line ? &line->entry : nullptr;
}

std::string known_algorithms_of(Collective collective) {
  std::string names;
  for (const CatalogueEntry& known : kEntries)
    if (known.collective == collective) names.append(names.empty() ? "" : ", ").append(name_of(known.algorithm));
  return names;
}

Status check(const Recipe& recipe) {
  using enum ErrorCode;
  const auto name = name_of(recipe.collective);
  if (static_cast<std::size_t>(recipe.collective) >= kCollectiveCount)
    return failure(invalid_argument, "unknown collective {}, known are {}", static_cast<int>(recipe.collective),
                   known_collectives());
  if (!find_in_catalogue(recipe.collective, recipe.algorithm))
    return failure(invalid_argument, "{} has no algorithm {}, it has {}", name, name_of(recipe.algorithm),
                   known_algorithms_of(recipe.collective));
  if (recipe.world < 1 || recipe.world > limits::ranks_max)
    return failure(out_of_range, "{} {}: world of {} ranks, allowed are 1 to {}", name, name_of(recipe.algorithm),
                   recipe.world, limits::ranks_max);
  if (recipe.root >= recipe.world)
    return failure(out_of_range, "{} {}: {} {} is outside the world of {} ranks", name, name_of(recipe.algorithm),
                   has_root(recipe.collective) ? "root" : "peer", recipe.root, recipe.world);
  if (recipe.segments < 1 || recipe.segments > limits::segments_max)
    return failure(out_of_range, "{} {}: {} segments, allowed are 1 to {}", name, name_of(recipe.algorithm),
                   recipe.segments, limits::segments_max);
  if (!recipe.hosts.empty() && recipe.hosts.size() != recipe.world)
    return failure(invalid_argument, "{} {}: hosts of {} ranks given, expected none or {}", name,
                   name_of(recipe.algorithm), recipe.hosts.size(), recipe.world);
  return check_shards(recipe);
}

Shape shape_of(const Recipe& recipe, std::uint32_t rank) {
  GRADSYNC_CHECK(rank < recipe.world);
  const Generator& generator = generator_of(recipe);
  Shape shape = frame_of(recipe, rank, generator.chunks(recipe));
  shape.scratch_copies = generator.scratch(recipe, rank);
  return shape;
}

void generate(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  GRADSYNC_CHECK(rank < recipe.world);
  generator_of(recipe).steps(recipe, rank, out);
}

Schedule make_schedule(const Recipe& recipe, std::uint32_t rank) {
  Schedule schedule{recipe, rank, shape_of(recipe, rank), {}};
  Emit out(schedule.steps);
  generate(recipe, rank, out);
  return schedule;
}

GeneratedSteps::GeneratedSteps(const Recipe& recipe, std::uint32_t rank, std::uint32_t window_steps)
    : recipe_(&recipe),
      rank_(rank),
      window_steps_(window_steps) {
  GRADSYNC_CHECK(window_steps >= 1);
}

std::span<const Step> GeneratedSteps::window(std::uint64_t first) {
  steps_.clear();
  Emit out(steps_, first, window_steps_);
  generate(*recipe_, rank_, out);
  return steps_;
}

}  // namespace gradsync
