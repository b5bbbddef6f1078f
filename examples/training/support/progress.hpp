// How far a long run is: a bar that redraws itself on a terminal, a plain line every tenth elsewhere (a file, a pipe, the
// prefixed output of `gradsync run`), where control characters would only be noise.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace training {

struct ProgressState {
  std::string what;     // "epoch 2/3"
  std::string figures;  // "loss 0.412"
  std::uint64_t done = 0, total = 0;
  double seconds = 0;  // since the beginning
};

// "epoch 2/3 [#####-----]  50 %  loss 0.412  12 s left"; without the bar where `bar_width` is 0. The estimate is left out
// before there is ground for one and at the end.
std::string progress_line(const ProgressState& state, std::uint32_t bar_width);

class Progress {
 public:
  // Writes to `out`, borrowed. `silent`: nothing at all (every rank but one).
  Progress(std::FILE* out, bool terminal, bool silent) : out_(out), terminal_(terminal), silent_(silent) {}
  void show(const ProgressState& state);  // call it every step; it decides whether to write
  void line(const std::string& text);     // a whole line, above the bar

 private:
  std::FILE* out_;
  bool terminal_, silent_;
  std::uint64_t tenths_shown_ = 0;
  double shown_at_s_ = -1;
};

bool is_terminal(std::FILE* file);

}  // namespace training
