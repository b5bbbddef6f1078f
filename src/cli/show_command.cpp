#include <cerrno>
#include <cstdio>
#include <fstream>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/drawing.hpp"
#include "cli/launcher.hpp"
#include "schedule/layouts.hpp"

namespace gradsync::cli {
namespace {

constexpr std::int64_t elements_max = std::int64_t{1} << 46;

Status in_range(std::string_view name, std::int64_t value, std::int64_t first, std::int64_t last) {
  if (value >= first && value <= last) return {};
  return failure(ErrorCode::invalid_argument, "{} is {}, expected {} to {}", name, value, first, last);
}

Result<Recipe> read_recipe(const ShowArguments& arguments) {
  auto algorithm = read_algorithm(arguments.algorithm);
  if (!algorithm) return algorithm.status();
  auto collective = read_collective(arguments.collective);
  if (!collective) return collective.status();
  const CatalogueEntry* entry = find_in_catalogue(*collective, *algorithm);
  if (entry == nullptr)
    return failure(ErrorCode::invalid_argument, "{} has no algorithm '{}'; known: {}", arguments.collective,
                   arguments.algorithm, known_algorithms_of(*collective));
  for (const Status& status : {in_range("-n", arguments.ranks, 1, limits::ranks_max),
                               in_range("--rank", arguments.rank, -1, arguments.ranks - 1),
                               in_range("--root", arguments.root, 0, arguments.ranks - 1),
                               in_range("--segments", arguments.segments, 1, limits::segments_max),
                               in_range("--elements", arguments.elements, -1, elements_max)})
    if (!status.ok()) return status;
  if (arguments.segments != 1 && !entry->pipelines)
    return failure(ErrorCode::invalid_argument, "--segments is {}, but {} {} has no pipeline to cut",
                   arguments.segments, arguments.algorithm, arguments.collective);
  Recipe recipe{*collective,
                *algorithm,
                static_cast<std::uint32_t>(arguments.ranks),
                static_cast<std::uint32_t>(arguments.root),
                static_cast<std::uint32_t>(arguments.segments),
                {}};
  if (!arguments.hosts.empty()) {
    auto hosts = read_hosts(arguments.hosts);
    if (!hosts) return hosts.status();
    recipe.hosts = std::move(*hosts);
  }
  if (!arguments.shards.empty()) {
    auto shards = read_shards(arguments.shards);
    if (!shards) return shards.status();
    recipe.shards = std::move(*shards);
  }
  Status status = check(recipe);
  if (!status.ok()) return status;
  return recipe;
}

// "chunks of 12 elements: 0 4 4 4", and a line's end; nothing if nobody asked.
std::string sizes_text(const Recipe& recipe, std::int64_t elements) {
  if (elements < 0) return {};
  const Layout layout = layout_for(recipe, shape_of(recipe, 0), static_cast<std::uint64_t>(elements));
  std::string text = fmt::format("chunks of {} elements:", elements);
  for (std::uint32_t chunk = 0; chunk < layout.chunks(); ++chunk) text += fmt::format(" {}", layout.size(chunk));
  return text + "\n";
}

int write_file(const std::string& path, const std::string& text) {
  if (path == "-") return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (file) return 0;
  return complain("show", failure(ErrorCode::unavailable, "cannot write '{}': {}", path, errno_text(errno)), 1);
}

}  // namespace

int show_command(const ShowArguments& arguments) {
  auto recipe = read_recipe(arguments);
  if (!recipe) return complain("show", recipe.status(), exit_usage);
  if (arguments.rank >= 0 && arguments.svg.empty()) {
    const std::string sizes = sizes_text(*recipe, arguments.elements);
    fmt::print("{}{}{}", sizes.empty() ? "" : "# ", sizes,
               to_text(make_schedule(*recipe, static_cast<std::uint32_t>(arguments.rank))));
    return 0;
  }
  auto drawing = draw(*recipe);
  if (!drawing) return complain("show", drawing.status(), exit_usage);
  if (!arguments.svg.empty()) return write_file(arguments.svg, svg_of(*drawing));
  fmt::print(
      "{}\n{}\n{}\n3+0-1 in the column of rank 2: rank 2 sends chunks 0 to 1 to rank 3, which combines them with its "
      "own;"
      " = instead of +: takes them as they are\n",
      title_of(*drawing), sizes_text(*recipe, arguments.elements), table_of(*drawing));
  return 0;
}

}  // namespace gradsync::cli
