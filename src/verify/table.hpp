// The proofs of the whole catalogue, a row each: what `gradsync prove` prints.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "verify/proof.hpp"

namespace gradsync {

struct ProofTableOptions {
  std::uint32_t ranks_min = 1, ranks_max = 64;
  std::optional<Collective> collective;  // nothing: all
  std::optional<Algorithm> algorithm;
  bool log_step_only = false;
  // Elements of the message, by world, that the counts are given for; in collectives with blocks, of a block each.
  // Default: 8 a rank in all, as the golden counters.
  std::function<std::uint64_t(Collective, std::uint32_t world)> elements;
};

// One algorithm in one world, proven for every variant: aliasing, each root (in worlds up to 64; then the first, the
// middle and the last one), segments 1, 2, 3 and 5, for hierarchical several groupings into hosts, and, where parts may
// be uneven, several sets of weights, in worlds up to 256.
struct ProofRow {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::uint32_t world = 1;
  std::uint32_t variants = 0;     // recipes proven
  ProofCounts counts;             // of the first recipe: root 0, one segment, the first grouping
  std::uint64_t window_min = 1;   // that suffices for every variant
  std::uint64_t staging_max = 0;  // over all variants
  bool ok = true;
  std::string message;  // of the first violation, naming the variant
};

// The recipes that one row proves.
std::vector<Recipe> variants_of(const CatalogueEntry& entry, std::uint32_t world);
ProofRow prove_row(const CatalogueEntry& entry, std::uint32_t world, const ProofTableOptions& options = {});
// Calls `each` row by row, in the order of the catalogue and then of the world.
void prove_table(const ProofTableOptions& options, const std::function<void(const ProofRow&)>& each);
std::vector<ProofRow> prove_table(const ProofTableOptions& options);

}  // namespace gradsync
