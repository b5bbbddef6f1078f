#include "support/process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "base/status.hpp"

extern char** environ;

namespace gradsync::test {
namespace {

// All that the child needs, made before the fork.
struct Prepared {
  char* const* command;
  char* const* environment;
  int network, null, output, report;
  pid_t parent;
};

[[noreturn]] void fail_in_child(int report) {
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(report, &error, sizeof error);
  ::_exit(127);
}

[[noreturn]] void become_program(const Prepared& p) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != p.parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (p.network >= 0 && ::setns(p.network, CLONE_NEWNET) != 0) fail_in_child(p.report);
  if (::dup2(p.null, 0) < 0 || ::dup2(p.output, 1) < 0 || ::dup2(p.output, 2) < 0) fail_in_child(p.report);
  ::execvpe(p.command[0], p.command, p.environment);
  fail_in_child(p.report);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  Descriptor read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe: " + errno_text(errno));
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
};

int reported_error(int report) {
  int error = 0;
  ssize_t got;
  do got = ::read(report, &error, sizeof error);
  while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

}  // namespace

Process start_process(const ProcessPlan& plan) {
  const std::vector<char*> command = pointers_to(plan.command), environment = pointers_to(plan.environment);
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe output, report;
  const Prepared prepared{command.data(),     environment.data(), plan.network, null.get(),
                          output.write.get(), report.write.get(), ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("cannot fork: " + errno_text(errno));
  if (pid == 0) become_program(prepared);
  ::setpgid(pid, pid);  // whoever of the two comes first
  report.write.reset();
  const int error = reported_error(report.read.get());
  Process process{pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), std::move(output.read)};
  if (error == 0 && process.ended && ::fcntl(process.output.get(), F_SETFL, O_NONBLOCK) == 0) return process;
  const int why = error != 0 ? error : errno;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  throw std::runtime_error(fmt::format("cannot start '{}': {}", plan.command.at(0), errno_text(why)));
}

std::vector<std::string> current_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

}  // namespace gradsync::test
