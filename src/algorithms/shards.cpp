// Uneven parts: which algorithms have them, and whether the weights are right.
#include <algorithm>

#include "algorithms/catalogue.hpp"

namespace gradsync {

std::uint32_t shards_of(const Recipe& recipe) {
  if (recipe.collective != Collective::all_reduce) return 0;
  if (recipe.algorithm == Algorithm::two_shot) return recipe.world;
  if (recipe.algorithm != Algorithm::hierarchical) return 0;
  if (recipe.hosts.empty()) return 1;
  std::vector<std::uint32_t> hosts = recipe.hosts;
  std::sort(hosts.begin(), hosts.end());
  return static_cast<std::uint32_t>(std::unique(hosts.begin(), hosts.end()) - hosts.begin());
}

Status check_shards(const Recipe& recipe) {
  if (recipe.shards.empty()) return {};
  const std::uint32_t expected = shards_of(recipe);
  const auto words = [&] { return fmt::format("{} {}", name_of(recipe.collective), name_of(recipe.algorithm)); };
  if (expected == 0)
    return failure(
        ErrorCode::invalid_argument,
        "{} has no uneven shards; all_reduce two_shot (a weight a rank) and hierarchical (a weight a host) do",
        words());
  if (recipe.shards.size() != expected)
    return failure(ErrorCode::invalid_argument, "{}: weights of {} shards given, expected {}", words(),
                   recipe.shards.size(), expected);
  std::uint64_t sum = 0;
  for (std::uint32_t weight : recipe.shards) sum += weight;
  if (sum == 0 || sum > UINT32_MAX)
    return failure(ErrorCode::out_of_range, "{}: the shards' weights add up to {}, expected 1 to {}", words(), sum,
                   UINT32_MAX);
  return {};
}

}  // namespace gradsync
