// What a training program's command line may hold, and that all ranks were given the same.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradsync/communicator.hpp"

namespace training {

// Also not NaN, which compares with nothing.
inline CLI::Validator positive_number() {
  return {[](std::string& text) {
            double value = 0;
            const bool fits = CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value > 0;
            return fits ? std::string() : fmt::format("is {}, expected a number above 0", text);
          },
          "POSITIVE"};
}
inline CLI::Range count(std::int64_t least, std::int64_t most = std::int64_t{1} << 40) { return {least, most}; }

struct Setting {
  std::string name;
  double value = 0;
};

// Collective. Throws std::invalid_argument on every rank if they differ: names the first one that does, with both values.
inline void require_equal_settings(const std::vector<Setting>& settings, gradsync::Communicator& comm) {
  std::vector<double> mine, all(settings.size() * static_cast<std::size_t>(comm.size()));
  for (const Setting& setting : settings) mine.push_back(setting.value);
  comm.all_gather(gradsync::view(mine), gradsync::view(all));
  for (std::size_t at = settings.size(); at < all.size(); ++at) {
    const std::size_t which = at % settings.size();
    if (all[at] == all[which]) continue;
    throw std::invalid_argument(fmt::format("{} is {} on rank {} and {} on rank 0, expected the same on every rank",
                                            settings[which].name, all[at], at / settings.size(), all[which]));
  }
}

}  // namespace training
