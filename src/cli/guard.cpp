#include "cli/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/descriptor.hpp"
#include "base/limits.hpp"
#include "base/status.hpp"
#include "cli/descendants.hpp"
#include "cli/launcher.hpp"
#include "cli/signals.hpp"

namespace gradsync::cli {
namespace {

int cannot(const char* what) {
  fmt::print(stderr, "gradsync: {}: {}\n", what, errno_text(errno));
  return exit_launcher;
}

// Passes signals on until the child has ended.
void watch_over(pid_t child, const Descriptor& process, const Descriptor& signals) {
  for (;;) {
    pollfd watch[2] = {{process.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (::poll(watch, 2, -1) < 0 && errno != EINTR) return;  // the child's end is the deadline
    signalfd_siginfo info;
    while (::read(signals.get(), &info, sizeof info) == sizeof info) ::kill(child, static_cast<int>(info.ssi_signo));
    if ((watch[0].revents & POLLIN) != 0) return;
  }
}

}  // namespace

int guarded(const std::function<int(int)>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return cannot("pipe");
  Descriptor lifeline(ends[0]), hold(ends[1]);
  const BlockedSignals blocked(true);
  const sigset_t wanted = launcher_signals();
  const Descriptor signals(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return cannot("signalfd");
  const Subreaper subreaper;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return cannot("cannot start a process");
  if (child == 0) {
    hold.reset();
    ::setpgid(0, 0);  // the terminal's signals come to the parent alone, once
    const int code = body(lifeline.get());
    std::fflush(nullptr);
    ::_exit(code);
  }
  lifeline.reset();
  const Descriptor process(open_process(child));
  if (process) watch_over(child, process, signals);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  end_descendants({}, Deadline::after(limits::launcher_kill_grace));
  if (WIFSIGNALED(status)) fmt::print(stderr, "gradsync: the launcher {}\n", describe_ending(status));
  return exit_code_of(status);
}

}  // namespace gradsync::cli
