#include "support/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace training {
namespace {

constexpr std::uint32_t bar_width_on_terminal = 24;
constexpr double redraw_interval_s = 0.1;
constexpr double estimate_after_s = 1;
constexpr const char* back_and_clear = "\r\x1b[K";

double share_of(const ProgressState& state) {
  if (state.total == 0) return 1;
  return std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
}

}  // namespace

std::string progress_line(const ProgressState& state, std::uint32_t bar_width) {
  const double share = share_of(state);
  std::string line = state.what;
  if (bar_width > 0) {
    const auto filled = static_cast<std::uint32_t>(share * bar_width);
    line += fmt::format(" [{}{}]", std::string(filled, '#'), std::string(bar_width - filled, '-'));
  }
  line += fmt::format(" {:3.0f} %", 100 * share);
  if (!state.figures.empty()) line += "  " + state.figures;
  if (share > 0 && share < 1 && state.seconds >= estimate_after_s)
    line += fmt::format("  {:.0f} s left", state.seconds * (1 - share) / share);
  return line;
}

void Progress::show(const ProgressState& state) {
  if (silent_) return;
  const bool end = state.done >= state.total;
  if (terminal_) {
    if (!end && shown_at_s_ >= 0 && state.seconds - shown_at_s_ < redraw_interval_s) return;
    shown_at_s_ = state.seconds;
    fmt::print(out_, "{}{}{}", back_and_clear, progress_line(state, bar_width_on_terminal), end ? "\n" : "");
  } else {
    const auto tenths = static_cast<std::uint64_t>(share_of(state) * 10);
    if (tenths <= tenths_shown_) return;
    tenths_shown_ = tenths;
    fmt::print(out_, "{}\n", progress_line(state, 0));
  }
  std::fflush(out_);
}

void Progress::line(const std::string& text) {
  if (silent_) return;
  fmt::print(out_, "{}{}\n", terminal_ ? back_and_clear : "", text);
  std::fflush(out_);
}

bool is_terminal(std::FILE* file) { return isatty(fileno(file)) == 1; }

}  // namespace training
