#include "cli/drawing.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "algorithms/catalogue.hpp"

namespace gradsync::cli {
namespace {

constexpr std::size_t table_columns_max = 160;

struct Posted {
  std::uint64_t round;
  std::string chunks;
};

// Walks all ranks, each as far as the messages that it has allow.
class Walk {
 public:
  explicit Walk(const Recipe& recipe) : ranks_(recipe.world) {
    drawing_.recipe = recipe;
    for (std::uint32_t r = 0; r < recipe.world; ++r) ranks_[r].schedule = make_schedule(recipe_of(recipe, r), r);
  }

  Result<Drawing> run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::uint32_t r = 0; r < ranks_.size(); ++r)
        while (ranks_[r].next < ranks_[r].schedule.steps.size() && run_step(r)) moved = true;
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r].next < ranks_[r].schedule.steps.size())
        return failure(ErrorCode::internal, "rank {} waits forever at step {}: {}", r, ranks_[r].next,
                       to_text(ranks_[r].schedule.steps[ranks_[r].next]));
    std::ranges::stable_sort(drawing_.messages, {}, [](const Message& m) { return std::pair(m.round, m.from); });
    if (!drawing_.messages.empty()) drawing_.rounds = drawing_.messages.back().round;
    return std::move(drawing_);
  }

 private:
  struct Rank {
    Schedule schedule;
    std::size_t next = 0;
    std::uint64_t clock = 0;
    std::uint64_t sent = 0;  // the round in which its last message arrives
  };

  // The other end of a send or recv follows the opposite recipe; nobody else takes part.
  static Recipe recipe_of(Recipe recipe, std::uint32_t rank) {
    const bool pair = recipe.collective == Collective::send || recipe.collective == Collective::recv;
    if (pair && rank == recipe.root) {
      recipe.collective = recipe.collective == Collective::send ? Collective::recv : Collective::send;
      recipe.root = recipe.root == 0 ? 1 : 0;
    }
    return recipe;
  }

  bool run_step(std::uint32_t r) {
    Rank& rank = ranks_[r];
    const Step& step = rank.schedule.steps[rank.next];
    const std::string chunks = chunks_text(rank.schedule.shape, step.space, step.range());
    if (step.verb == Verb::send) {
      rank.sent = rank.clock + 1;
      posted_[{r, step.peer}].push_back({rank.sent, chunks});
    } else if (step.verb == Verb::local) {
      drawing_.local.push_back({r, rank.clock, step.mode, chunks});
    } else {
      auto& queue = posted_[{step.peer, r}];
      if (queue.empty()) return false;
      rank.clock = std::max({rank.clock, rank.sent, queue.front().round});
      drawing_.messages.push_back({step.peer, r, queue.front().round, step.mode, std::move(queue.front().chunks)});
      queue.pop_front();
    }
    ++rank.next;
    return true;
  }

  std::vector<Rank> ranks_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Posted>> posted_;
  Drawing drawing_;
};

std::string message_text(const Message& message) {
  return fmt::format("{}{}{}", message.to, message.mode == Mode::combine ? '+' : '=', message.chunks);
}

// cells[round - 1][sender]
std::vector<std::vector<std::string>> cells_of(const Drawing& drawing) {
  std::vector<std::vector<std::string>> cells(drawing.rounds, std::vector<std::string>(drawing.recipe.world));
  for (const Message& message : drawing.messages) {
    std::string& cell = cells[message.round - 1][message.from];
    if (!cell.empty()) cell += ' ';
    cell += message_text(message);
  }
  return cells;
}

std::string as_columns(const std::vector<std::vector<std::string>>& cells, const std::vector<std::size_t>& widths) {
  std::string text = "round";
  for (std::size_t r = 0; r < widths.size(); ++r) text += fmt::format("  {:<{}}", fmt::format("rank {}", r), widths[r]);
  text.resize(text.find_last_not_of(' ') + 1);
  text += '\n';
  for (std::size_t round = 0; round < cells.size(); ++round) {
    std::string line = fmt::format("{:>5}", round + 1);
    for (std::size_t r = 0; r < widths.size(); ++r)
      line += fmt::format("  {:<{}}", cells[round][r].empty() ? "." : cells[round][r], widths[r]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

std::string as_list(const std::vector<std::vector<std::string>>& cells) {
  std::string text;
  for (std::size_t round = 0; round < cells.size(); ++round) {
    text += fmt::format("round {}\n", round + 1);
    for (std::size_t r = 0; r < cells[round].size(); ++r)
      if (!cells[round][r].empty()) text += fmt::format("  rank {} sends to  {}\n", r, cells[round][r]);
  }
  return text;
}

}  // namespace

std::string chunks_text(const Shape& shape, Space space, Range range) {
  std::string text;
  for (std::uint32_t i = 0; i < range.count;) {
    const std::uint32_t first = shape.message_chunk(space, shape.chunk(space, range.first, i));
    std::uint32_t last = first;
    while (++i < range.count && shape.message_chunk(space, shape.chunk(space, range.first, i)) == last + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last != first) text += fmt::format("-{}", last);
  }
  return text;
}

Result<Drawing> draw(const Recipe& recipe) {
  Status status = check(recipe);
  if (!status.ok()) return status;
  if (recipe.world > drawing_ranks_max)
    return failure(ErrorCode::invalid_argument, "{} ranks are too many to draw, at most {}; --rank shows one",
                   recipe.world, drawing_ranks_max);
  return Walk(recipe).run();
}

std::string title_of(const Drawing& drawing) {
  std::vector<std::size_t> sent(drawing.recipe.world);
  for (const Message& message : drawing.messages) ++sent[message.from];
  const std::vector<std::uint32_t>& shards = drawing.recipe.shards;
  return fmt::format("{} {}{} on {} rank{}: {} round{}, {} message{}, at most {} from a rank",
                     name_of(drawing.recipe.collective), name_of(drawing.recipe.algorithm),
                     shards.empty() ? "" : fmt::format(", shards {},", fmt::join(shards, ",")), drawing.recipe.world,
                     drawing.recipe.world == 1 ? "" : "s", drawing.rounds, drawing.rounds == 1 ? "" : "s",
                     drawing.messages.size(), drawing.messages.size() == 1 ? "" : "s", std::ranges::max(sent));
}

std::string table_of(const Drawing& drawing) {
  const auto cells = cells_of(drawing);
  std::vector<std::size_t> widths(drawing.recipe.world, 7);
  for (const auto& row : cells)
    for (std::size_t r = 0; r < row.size(); ++r) widths[r] = std::max(widths[r], row[r].size());
  std::size_t columns = 5;
  for (const std::size_t width : widths) columns += width + 2;
  return columns <= table_columns_max ? as_columns(cells, widths) : as_list(cells);
}

}  // namespace gradsync::cli
