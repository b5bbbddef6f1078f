#include "cli/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cli/descendants.hpp"

namespace gradsync::cli {
namespace {

struct Pipe {
  Descriptor read, write;
};

bool open_pipe(Pipe& out) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  out.read.reset(ends[0]);
  out.write.reset(ends[1]);
  return true;
}

// Everything that the child needs, made before the fork: between fork and exec only system calls are allowed.
struct Prepared {
  const char* file;
  char* const* arguments;
  char* const* environment;
  int null, out, err, report;
  pid_t parent;
  rlim_t descriptors_soft;
};

[[noreturn]] void fail_in_child(int report) {
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(report, &error, sizeof error);
  ::_exit(exit_not_found);
}

// Handlers end with exec; what was ignored stays ignored, as with nohup.
void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void become_program(const Prepared& p) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != p.parent) ::_exit(exit_not_found);  // it died before the line above
  unblock_signals();
  rlimit limit{};
  if (p.descriptors_soft != 0 && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = p.descriptors_soft;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (::dup2(p.null, 0) < 0 || ::dup2(p.out, 1) < 0 || ::dup2(p.err, 2) < 0) fail_in_child(p.report);
  ::execve(p.file, p.arguments, p.environment);
  fail_in_child(p.report);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Status cannot_start(int error_number) {
  return failure(ErrorCode::unavailable, "cannot start a process: {}", errno_text(error_number));
}

// errno of the child's exec, or 0 when it succeeded and closed the report.
int read_report(int report) {
  int error = 0;
  ssize_t got;
  do got = ::read(report, &error, sizeof error);
  while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

Status check_program(const std::string& file) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0)
    return failure(ErrorCode::out_of_range, "cannot run '{}': {}", file, errno_text(errno));
  if (S_ISDIR(about.st_mode)) return failure(ErrorCode::unsupported, "cannot run '{}': it is a directory", file);
  if (::access(file.c_str(), X_OK) != 0)
    return failure(ErrorCode::unsupported, "cannot run '{}': {} (is it executable?)", file, errno_text(errno));
  return {};
}

}  // namespace

Result<std::string> find_program(const std::string& name, const std::string& path) {
  if (name.empty()) return failure(ErrorCode::out_of_range, "cannot run '': the program's name is empty");
  if (name.find('/') != std::string::npos) {
    Status status = check_program(name);
    if (!status.ok()) return status;
    return name;
  }
  Status found_but_unusable;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string folder = end == at ? "." : path.substr(at, end - at);
    Status status = check_program(folder + "/" + name);
    if (status.ok()) return folder + "/" + name;
    if (status.code == ErrorCode::unsupported && found_but_unusable.ok()) found_but_unusable = std::move(status);
    at = end + 1;
  }
  if (!found_but_unusable.ok()) return found_but_unusable;
  return failure(ErrorCode::out_of_range,
                 "cannot run '{}': not found along PATH ({}); for a file of this folder write ./{}", name, path, name);
}

Result<Worker> spawn(const Program& program) {
  const std::vector<char*> arguments = pointers_to(program.arguments), environment = pointers_to(program.environment);
  Pipe out, err, report;
  const Descriptor null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null || !open_pipe(out) || !open_pipe(err) || !open_pipe(report)) return cannot_start(errno);
  const Prepared prepared{program.file.c_str(), arguments.data(), environment.data(),
                          null.get(),           out.write.get(),  err.write.get(),
                          report.write.get(),   ::getpid(),       program.descriptors_soft};
  const pid_t pid = ::fork();
  if (pid < 0) return cannot_start(errno);
  if (pid == 0) become_program(prepared);
  ::setpgid(pid, pid);  // whoever of the two comes first; fails harmlessly after the exec
  report.write.reset();
  const int error = read_report(report.read.get());
  if (error != 0) {
    ::waitpid(pid, nullptr, 0);
    return failure(ErrorCode::unsupported, "cannot run '{}': {}", program.file, errno_text(error));
  }
  Worker worker{pid, Descriptor(open_process(pid)), std::move(out.read), std::move(err.read)};
  if (!worker.process || ::fcntl(worker.out.get(), F_SETFL, O_NONBLOCK) != 0 ||
      ::fcntl(worker.err.get(), F_SETFL, O_NONBLOCK) != 0) {
    const int why = errno;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return cannot_start(why);
  }
  return worker;
}

}  // namespace gradsync::cli
