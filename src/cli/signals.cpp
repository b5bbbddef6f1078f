#include "cli/signals.hpp"

#include <pthread.h>

#include <cctype>
#include <cstring>
#include <ctime>

namespace gradsync::cli {

sigset_t launcher_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  return set;
}

std::string signal_text(int number) {
  const char* words = ::sigdescr_np(number);
  std::string text = words != nullptr ? words : "unknown";
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

BlockedSignals::BlockedSignals(bool launcher) {
  sigset_t set;
  sigemptyset(&set);
  if (launcher) set = launcher_signals();
  sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BlockedSignals::~BlockedSignals() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{0, 0};
  if (sigismember(&before_, SIGPIPE) == 0) ::sigtimedwait(&pipe, nullptr, &now);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace gradsync::cli
