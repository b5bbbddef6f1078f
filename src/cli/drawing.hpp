// A whole world's schedules as messages in time: what `gradsync show` prints and draws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "schedule/schedule.hpp"

namespace gradsync::cli {

inline constexpr std::uint32_t drawing_ranks_max = 1024;

// Time is counted in rounds, by Lamport clocks in program order as the proofs count them: a message arrives one round
// after its sender's clock; a receive moves the receiver's clock to it, and past the sends before it.
struct Message {
  std::uint32_t from = 0, to = 0;
  std::uint64_t round = 0;   // of its arrival, from 1
  Mode mode = Mode::assign;  // what the receiver does with it
  std::string chunks;        // "0-3", as numbered in the whole message
};
struct LocalStep {
  std::uint32_t rank = 0;
  std::uint64_t round = 0;  // the rank's clock, from 0
  Mode mode = Mode::assign;
  std::string chunks;
};
struct Drawing {
  Recipe recipe;
  std::uint64_t rounds = 0;
  std::vector<Message> messages;  // by round, then by sender
  std::vector<LocalStep> local;
};

// Error: the recipe's (see check), more than `drawing_ranks_max` ranks, or schedules that wait forever.
Result<Drawing> draw(const Recipe& recipe);

// "6-7,0-1": the chunks of a range of a space.
std::string chunks_text(const Shape& shape, Space space, Range range);

// "all_reduce ring on 8 ranks: 14 rounds, 112 messages, at most 14 from a rank"
std::string title_of(const Drawing& drawing);
// One line a round; "3+0-1" in the column of rank 2: rank 2 sends chunks 0 to 1 to rank 3, which combines them with its
// own ('=' instead of '+': takes them as they are).
std::string table_of(const Drawing& drawing);
// Ranks from left to right, time downwards.
std::string svg_of(const Drawing& drawing);

}  // namespace gradsync::cli
