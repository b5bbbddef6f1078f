// The generated page docs/algorithms.md.
#pragma once

#include <string>

#include "gradsync/types.hpp"

namespace gradsync::cli {

// What an algorithm does, in a sentence or two.
std::string_view story_of(Algorithm algorithm);

// Every catalogue entry with its proven counts and its drawing for 8 ranks. The same text on every machine.
std::string algorithms_page();

}  // namespace gradsync::cli
