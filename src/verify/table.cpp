#include "verify/table.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "schedule/layouts.hpp"

namespace gradsync {
namespace {

constexpr std::uint32_t kRootsAllRanks = 64;   // worlds in which every root is proven
constexpr std::uint32_t kVariantsRanks = 256;  // worlds in which more than one variant is proven

bool point_to_point(Collective c) { return c == Collective::send || c == Collective::recv; }

std::vector<std::uint32_t> roots_of(Collective collective, std::uint32_t world) {
  if (point_to_point(collective) && world == 2) return {0, 1};
  if (!has_root(collective)) return {0};
  if (world > kVariantsRanks) return {world / 3};
  std::vector<std::uint32_t> roots;
  for (std::uint32_t r = 0; r < world; ++r)
    if (world <= kRootsAllRanks || r == 0 || r == world / 2 || r == world - 1) roots.push_back(r);
  return roots;
}

// Hosts of `size` ranks, the last one smaller where it does not divide the world.
std::vector<std::uint32_t> hosts_of(std::uint32_t world, std::uint32_t size) {
  std::vector<std::uint32_t> hosts(world);
  for (std::uint32_t r = 0; r < world; ++r) hosts[r] = r / size;
  return hosts;
}

std::vector<std::vector<std::uint32_t>> groupings_of(Algorithm algorithm, std::uint32_t world) {
  using Hosts = std::vector<std::uint32_t>;
  if (algorithm != Algorithm::hierarchical) return {Hosts{}};
  std::vector<Hosts> groupings{hosts_of(world, 8), Hosts{}};
  if (world > kVariantsRanks) return {groupings.front()};
  for (std::uint32_t size : {1u, 2u, 3u, 5u}) groupings.push_back(hosts_of(world, size));
  Hosts dealt(world), triangle(world);  // ranks dealt out to three hosts in turn; hosts of 1, 2, 3, … ranks
  for (std::uint32_t r = 0; r < world; ++r) dealt[r] = r % std::min(world, 3u);
  for (std::uint32_t r = 0, host = 0, left = 1; r < world; ++r) {
    triangle[r] = host;
    if (--left == 0) left = ++host + 1;
  }
  groupings.push_back(dealt);
  groupings.push_back(triangle);
  std::sort(groupings.begin() + 2, groupings.end());
  groupings.erase(std::unique(groupings.begin() + 2, groupings.end()), groupings.end());
  return groupings;
}

// Weights for a recipe that may have uneven shards: none; a slow first part of nothing; one that owns all; a mixture.
std::vector<std::vector<std::uint32_t>> shards_of_variants(const Recipe& recipe) {
  using Weights = std::vector<std::uint32_t>;
  std::vector<Weights> all{Weights{}};
  const std::uint32_t parts = shards_of(recipe);
  if (parts < 2 || recipe.world > kVariantsRanks) return all;
  Weights first(parts, 1), last(parts, 0), mixed(parts);
  first.front() = 0;
  last.back() = 1;
  for (std::uint32_t i = 0; i < parts; ++i) mixed[i] = i * 5 % 7;
  if (parts == 2) mixed = {1, 3};
  all.insert(all.end(), {first, last, mixed});
  return all;
}

std::string describe(const Recipe& recipe) {
  std::string text =
      fmt::format("{} {} of {} ranks", name_of(recipe.collective), name_of(recipe.algorithm), recipe.world);
  if (has_root(recipe.collective) || point_to_point(recipe.collective)) text += fmt::format(", root {}", recipe.root);
  if (recipe.segments > 1) text += fmt::format(", {} segments", recipe.segments);
  if (!recipe.hosts.empty()) text += fmt::format(", hosts {}", fmt::join(recipe.hosts, " "));
  if (!recipe.shards.empty()) text += fmt::format(", shards {}", fmt::join(recipe.shards, " "));
  return text;
}

std::uint64_t default_elements(Collective collective, std::uint32_t world) {
  return has_blocks(collective) ? 8 : std::uint64_t{8} * world;
}

}  // namespace

std::vector<Recipe> variants_of(const CatalogueEntry& entry, std::uint32_t world) {
  std::vector<Recipe> recipes;
  std::vector<std::uint32_t> segments{1};
  if (entry.pipelines && world <= kVariantsRanks) segments = {1, 2, 3, 5};
  for (const auto& hosts : groupings_of(entry.algorithm, world))
    for (std::uint32_t root : roots_of(entry.collective, world))
      for (std::uint32_t s : segments) {
        Recipe recipe{entry.collective, entry.algorithm, world, root, s, hosts};
        for (auto& shards : shards_of_variants(recipe)) {
          recipe.shards = std::move(shards);
          recipes.push_back(recipe);
        }
      }
  return recipes;
}

ProofRow prove_row(const CatalogueEntry& entry, std::uint32_t world, const ProofTableOptions& options) {
  ProofRow row{entry.collective, entry.algorithm, world, 0, {}, 1, 0, true, {}};
  ProveOptions prove_options;
  const auto& elements = options.elements ? options.elements : default_elements;
  prove_options.layouts = layouts_of_count(elements(entry.collective, world));
  for (const Recipe& recipe : variants_of(entry, world)) {
    const Proof proof = prove_all_aliasings(recipe, prove_options);
    if (row.variants++ == 0) row.counts = proof.counts;
    row.window_min = std::max(row.window_min, proof.counts.window_min);
    row.staging_max = std::max(row.staging_max, proof.counts.staging_max);
    if (proof.ok()) continue;
    row.ok = false;
    row.message = describe(recipe) + ": " + proof.status.message;
    return row;
  }
  return row;
}

void prove_table(const ProofTableOptions& options, const std::function<void(const ProofRow&)>& each) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (options.collective && entry.collective != *options.collective) continue;
    if (options.algorithm && entry.algorithm != *options.algorithm) continue;
    if (options.log_step_only && !entry.log_step) continue;
    for (std::uint32_t world = options.ranks_min; world <= options.ranks_max; ++world)
      if (!point_to_point(entry.collective) || world == 2) each(prove_row(entry, world, options));
  }
}

std::vector<ProofRow> prove_table(const ProofTableOptions& options) {
  std::vector<ProofRow> rows;
  prove_table(options, [&](const ProofRow& row) { rows.push_back(row); });
  return rows;
}

}  // namespace gradsync
