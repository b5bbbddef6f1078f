// Signals as the launcher handles them: blocked, and read from a descriptor.
#pragma once

#include <signal.h>

#include <string>

namespace gradsync::cli {

// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, without those that this process was told to ignore (nohup).
sigset_t launcher_signals();

// "killed", "segmentation fault": the system's words, in lower case.
std::string signal_text(int number);

// SIGPIPE, and with `launcher` the signals above too, are blocked in this thread while it lives.
class BlockedSignals {
 public:
  explicit BlockedSignals(bool launcher);
  ~BlockedSignals();  // forgets a SIGPIPE of meanwhile
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace gradsync::cli
