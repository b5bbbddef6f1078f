// Sender and receiver agree on whether a value is divided, in every schedule of the catalogue that reduces.
#include "engine/division.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "algorithms/catalogue.hpp"

namespace gradsync {
namespace {

using Values = std::vector<bool>;  // of each chunk: divided

// One rank's memory, where a chunk is only "divided" or "not".
class Rank {
 public:
  Rank(const Recipe& recipe, std::uint32_t rank)
      : schedule_(make_schedule(recipe, rank)),
        divides_(dividing_steps(schedule_)) {
    for (std::size_t space = 0; space < spaces_.size(); ++space)
      spaces_[space].assign(schedule_.shape.size(static_cast<Space>(space)), false);
  }

  using Channels = std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<Values>>;
  // Runs steps in order until one waits for a message; true if any ran.
  bool run(Channels& channels) {
    const std::size_t start = next_;
    for (; next_ < schedule_.steps.size(); ++next_) {
      const Step& step = schedule_.steps[next_];
      if (step.verb == Verb::send) {
        channels[{schedule_.rank, step.peer}].push_back(read(step.space, step.first, step.count));
      } else if (step.verb == Verb::local) {
        write(step, read(step.source_space, step.source, step.count));
      } else {
        auto& queue = channels[{step.peer, schedule_.rank}];
        if (queue.empty()) break;
        write(step, queue.front());
        queue.pop_front();
      }
    }
    return next_ > start;
  }
  bool finished() const { return next_ == schedule_.steps.size(); }
  bool all_divided() const {
    for (bool divided : spaces_[static_cast<std::size_t>(Space::output)])
      if (!divided) return false;
    return true;
  }
  bool wrong() const { return wrong_; }

 private:
  Values read(Space space, std::uint32_t first, std::uint32_t count) const {
    Values values;
    for (std::uint32_t i = 0; i < count; ++i)
      values.push_back(spaces_[static_cast<std::size_t>(space)][schedule_.shape.chunk(space, first, i)]);
    return values;
  }
  // A sum needs undivided parts, and nothing is divided twice.
  void write(const Step& step, const Values& values) {
    Values& space = spaces_[static_cast<std::size_t>(step.space)];
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const std::uint32_t chunk = schedule_.shape.chunk(step.space, step.first, i);
      const bool sums = step.mode == Mode::combine;
      wrong_ = wrong_ || (sums && (values[i] || space[chunk])) || (divides_[next_] && values[i]);
      space[chunk] = values[i] || divides_[next_];
    }
  }

  Schedule schedule_;
  std::vector<bool> divides_;
  std::array<Values, 3> spaces_;
  std::size_t next_ = 0;
  bool wrong_ = false;
};

void expect_divided_once(const Recipe& recipe) {
  std::vector<Rank> ranks;
  for (std::uint32_t rank = 0; rank < recipe.world; ++rank) ranks.emplace_back(recipe, rank);
  Rank::Channels channels;
  for (bool moved = true; moved;) {
    moved = false;
    for (Rank& rank : ranks) moved = rank.run(channels) || moved;
  }
  for (std::uint32_t rank = 0; rank < recipe.world; ++rank)
    EXPECT_TRUE(ranks[rank].finished() && ranks[rank].all_divided() && !ranks[rank].wrong())
        << fmt::format("{} by {}, world {}, root {}, segments {}, {} hosts: rank {}", name_of(recipe.collective),
                       name_of(recipe.algorithm), recipe.world, recipe.root, recipe.segments,
                       recipe.hosts.empty() ? 1 : recipe.hosts.back() + 1, rank);
}

bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

std::vector<std::vector<std::uint32_t>> placements(std::uint32_t world) {
  std::vector<std::uint32_t> pairs, uneven;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    pairs.push_back(rank / 2);
    uneven.push_back(rank < world / 3 ? 0 : 1);
  }
  if (world / 3 == 0) uneven.assign(world, 0);
  return {{}, pairs, uneven};
}

TEST(Division, HappensOnceInEveryScheduleThatReduces) {
  std::uint32_t schedules = 0;
  for (const CatalogueEntry& entry : catalogue()) {
    if (!reduces(entry.collective)) continue;
    for (std::uint32_t world = 1; world <= 33; ++world)
      for (std::uint32_t root = 0; root < (entry.collective == Collective::reduce ? world : 1u); ++root)
        for (std::uint32_t segments : {1u, 3u})
          for (const auto& hosts : placements(world)) {
            if (segments > 1 && !entry.pipelines) continue;
            expect_divided_once({entry.collective, entry.algorithm, world, root, segments, hosts});
            ++schedules;
          }
  }
  EXPECT_GT(schedules, 1000u);
}

TEST(Division, RidesOnTheOwnersLastCombineAndNotOnWhatItGathers) {
  const Schedule schedule = make_schedule({Collective::all_reduce, Algorithm::ring, 4, 0, 1, {}}, 1);
  const std::vector<bool> divides = dividing_steps(schedule);
  std::uint32_t dividing = 0;
  for (std::size_t i = 0; i < divides.size(); ++i) {
    if (!divides[i]) continue;
    ++dividing;
    EXPECT_EQ(schedule.steps[i].mode, Mode::combine);
    EXPECT_EQ(schedule.steps[i].count, 1u);
  }
  EXPECT_EQ(dividing, 1u);
}

}  // namespace
}  // namespace gradsync
