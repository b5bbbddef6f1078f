// Random damage to a world of schedules: a verifier that does not object to it is no verifier.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/random.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

enum class MutationKind : std::uint8_t {
  drop,       // a step is gone
  duplicate,  // a step is there twice
  swap,       // two steps of a rank change places
  redirect,   // a send or recv names another rank
  mode,       // assign for combine, or combine for assign (of a recv or a local step)
  shift,      // a range starts elsewhere
  resize,     // a range is one chunk shorter or longer
};
inline constexpr std::size_t kMutationKindCount = 7;
std::string_view name_of(MutationKind kind);

struct Mutation {
  MutationKind kind;
  std::uint32_t rank;
  std::size_t step;
  std::string text;  // "rank 2 step 5: swap with step 7"
};

// Changes one random step of one random rank. Nothing, and no change, if the step drawn cannot be changed so (a
// redirect in a world of two ranks, say): draw again. The steps change, not always their meaning (two sends of equal
// chunks swapped).
std::optional<Mutation> mutate(std::span<Schedule> world, MutationKind kind, Random& random);

}  // namespace gradsync
