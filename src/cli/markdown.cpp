#include "cli/markdown.hpp"

#include <array>

#include "algorithms/catalogue.hpp"
#include "cli/drawing.hpp"
#include "schedule/layouts.hpp"
#include "verify/proof.hpp"

namespace gradsync::cli {
namespace {

constexpr std::uint32_t ranks_shown = 8;
constexpr double elements_a_rank = 8;

constexpr const char* introduction = R"(# The algorithms

This page is generated: `gradsync prove --markdown > docs/algorithms.md`. Every number on it was counted while the schedule was
being proven for eight ranks. S is the whole message; *staging* is what may have landed at a rank before it can take effect, at
most; *window* is how many messages of a pair of ranks must be allowed to be under way.

In the drawings a line is a round and a column a sender: `3+0-1` sends chunks 0 to 1 to rank 3, which combines them with its
own; `=` instead of `+` takes them as they are. `gradsync show ALGORITHM --svg FILE` draws the same as a picture.
)";

bool takes_two(Collective collective) { return collective == Collective::send || collective == Collective::recv; }

std::string share(std::uint64_t elements, std::uint32_t world) {
  return fmt::format("{:.4g} S", static_cast<double>(elements) / (elements_a_rank * world));
}

Recipe recipe_shown(const CatalogueEntry& entry) {
  Recipe recipe{entry.collective, entry.algorithm, takes_two(entry.collective) ? 2 : ranks_shown, 0, 1, {}};
  if (entry.algorithm == Algorithm::hierarchical)
    for (std::uint32_t r = 0; r < recipe.world; ++r) recipe.hosts.push_back(r / 4);
  return recipe;
}

// Elements as prove_row counts them by default: 8 a rank in all.
LayoutsOf layouts_shown(const Recipe& recipe) {
  const bool blocks = has_blocks(recipe.collective);
  return layouts_of_count(std::uint64_t{8} * (blocks ? 1 : recipe.world));
}

std::string section_of(const CatalogueEntry& entry) {
  const Recipe recipe = recipe_shown(entry);
  ProveOptions options;
  options.layouts = layouts_shown(recipe);
  const Proof proof = prove(recipe, options);
  const auto drawing = draw(recipe);
  std::string text = fmt::format("\n### {}: {}\n\n", name_of(entry.collective), name_of(entry.algorithm));
  text += fmt::format("{}\n\n", story_of(entry.algorithm));
  if (!proof.ok() || !drawing) return text + "**not proven**: " + proof.status.message + "\n";
  const ProofCounts& c = proof.counts;
  text += "| steps | messages of a rank | sent by a rank | sent in all | reduced by a rank | staging | window |\n";
  text += "|---|---|---|---|---|---|---|\n";
  text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n\n", c.steps, c.messages_max,
                      share(c.sent_max, recipe.world), share(c.sent, recipe.world), share(c.reduced_max, recipe.world),
                      share(c.staging_max, recipe.world), c.window_min);
  if (!recipe.hosts.empty()) text += "Two hosts of four ranks:\n\n";
  return text + "```\n" + table_of(*drawing) + "```\n";
}

}  // namespace

std::string_view story_of(Algorithm algorithm) {
  static constexpr std::array<std::string_view, kAlgorithmCount> stories = {
      "The library chooses.",
      "Everything goes through one rank. The baseline: simple, and the root's link carries it all.",
      "Every rank talks to its two neighbours only; parts go round once to be summed and once more to be spread. Moves "
      "the "
      "fewest bytes, in a number of steps that grows with the world.",
      "Partners at distance 1, 2, 4, ... exchange everything and combine: the fewest steps, for small messages. Worlds "
      "that "
      "are no power of two fold their surplus ranks into partners first.",
      "Rabenseifner's: halve what is kept while the distance doubles, then double it again on the way back. Few steps "
      "and the "
      "fewest bytes where the world is a power of two.",
      "Träff's: about log2 N rounds each way round a circle of blocks, and the fewest bytes for every world size.",
      "Everyone sends everything to everyone, once. One step; for very small messages.",
      "Everyone sends each owner its part; each owner sends the sum back to everyone. Two steps and the fewest bytes, "
      "with many "
      "messages: made for shared memory.",
      "Up a binary tree to the root and down again, in segments so that levels overlap.",
      "Two trees that share the work, so that every rank is a leaf in one and inner in the other: each carries half.",
      "Reduce within each host, all-reduce each slice across hosts, gather within each host: the slow links between "
      "hosts "
      "carry each byte once.",
      "Every pair of ranks exchanges its own block, once."};
  return stories[static_cast<std::size_t>(algorithm)];
}

std::string algorithms_page() {
  std::string page = introduction;
  std::string_view collective;
  for (const CatalogueEntry& entry : catalogue()) {
    if (name_of(entry.collective) != collective)
      page += fmt::format("\n## {}\n", collective = name_of(entry.collective));
    page += section_of(entry);
  }
  return page;
}

}  // namespace gradsync::cli
