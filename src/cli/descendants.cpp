#include "cli/descendants.hpp"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "base/descriptor.hpp"

namespace gradsync::cli {
namespace {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
};

// Reads "PID (NAME) STATE PARENT …" of proc(5). The name may hold anything, also ')', so the last one counts.
bool read_process(pid_t pid, Process& out) {
  char path[64], text[512];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path, "re"), [](std::FILE* f) { return f != nullptr ? std::fclose(f) : 0; });
  if (!file || std::fgets(text, sizeof text, file.get()) == nullptr) return false;
  const char* after_name = std::strrchr(text, ')');
  out.pid = pid;
  return after_name != nullptr && std::sscanf(after_name + 1, " %c %d", &out.state, &out.parent) == 2;
}

std::multimap<pid_t, Process> processes_by_parent() {
  std::multimap<pid_t, Process> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"),
                                                   [](DIR* d) { return d != nullptr ? ::closedir(d) : 0; });
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const pid_t pid = std::atoi(entry->d_name);
    Process process;
    if (pid > 0 && read_process(pid, process)) found.emplace(process.parent, process);
  }
  return found;
}

void reap(const std::set<pid_t>& except) {
  for (const pid_t pid : children())
    if (!except.contains(pid)) ::waitpid(pid, nullptr, WNOHANG);
}

}  // namespace

std::set<pid_t> children() {
  std::set<pid_t> pids;
  const auto processes = processes_by_parent();
  const auto [first, last] = processes.equal_range(::getpid());
  for (auto at = first; at != last; ++at) pids.insert(at->second.pid);
  return pids;
}

std::vector<pid_t> living_descendants(const std::set<pid_t>& except) {
  const auto processes = processes_by_parent();
  std::vector<pid_t> living, parents{::getpid()};
  std::set<pid_t> seen;
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const auto [first, last] = processes.equal_range(parents[i]);
    for (auto at = first; at != last; ++at) {
      const Process& process = at->second;
      if (except.contains(process.pid) || !seen.insert(process.pid).second) continue;
      parents.push_back(process.pid);
      if (process.state != 'Z' && process.state != 'X') living.push_back(process.pid);
    }
  }
  return living;
}

int open_process(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

bool end_descendants(const std::set<pid_t>& except, Deadline deadline) {
  for (;;) {
    const std::vector<pid_t> living = living_descendants(except);
    for (const pid_t pid : living) ::kill(pid, SIGKILL);
    reap(except);
    if (living.empty()) return true;
    if (deadline.passed()) return false;
    const Descriptor process(open_process(living.front()));
    pollfd watch{process.get(), POLLIN, 0};
    if (process) ::poll(&watch, 1, deadline.poll_milliseconds());
  }
}

Subreaper::Subreaper() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Subreaper::~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

}  // namespace gradsync::cli
