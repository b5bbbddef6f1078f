// Threads of the library's own.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace gradsync {

// Starts a thread that takes none of the program's signals: they belong to the program's own threads, which may block
// one to fetch it with sigwait or a signalfd. Those that a fault of the thread itself raises stay as they are, so that
// the program's handlers of crashes see them. Throws std::system_error if no thread can be started.
template <class Body>
[[nodiscard]] std::thread start_without_signals(Body body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      ::sigfillset(&all);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) ::sigdelset(&all, fault);
      ::pthread_sigmask(SIG_BLOCK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;  // a thread begins with its maker's mask
  return std::thread(std::move(body));
}

}  // namespace gradsync
