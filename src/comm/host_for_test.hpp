// A host, played by a network namespace.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "base/descriptor.hpp"
#include "comm/sockets.hpp"

namespace gradsync {

// A child process that does nothing but own a network namespace.
class Host {
 public:
  Host() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    const Descriptor reader(ends[0]);
    Descriptor writer(ends[1]);
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::unshare(CLONE_NEWNET) != 0 || ::getppid() != parent || ::write(writer.get(), "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    writer.reset();
    std::byte ready{};
    up_ = receive_from(reader.get(), ready);
  }
  ~Host() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  bool up() const { return up_; }
  pid_t process() const { return child_; }
  bool ip(const std::string& arguments) const { return sh("ip " + arguments); }
  // Runs a command of the system that is on this host.
  bool sh(const std::string& command) const {
    return std::system(fmt::format("nsenter --net=/proc/{}/ns/net {}", child_, command).c_str()) == 0;
  }
  // Runs `body` in a thread that is on this host.
  std::thread run(std::function<void()> body) const {
    return std::thread([this, body = std::move(body)] {
      const Descriptor space(::open(fmt::format("/proc/{}/ns/net", child_).c_str(), O_RDONLY | O_CLOEXEC));
      ASSERT_EQ(::setns(space.get(), CLONE_NEWNET), 0);
      body();
    });
  }

 private:
  static bool receive_from(int pipe, std::byte& into) {
    return poll_one(pipe, POLLIN, Deadline::after(std::chrono::seconds(10))) && ::read(pipe, &into, 1) == 1;
  }
  pid_t child_ = -1;
  bool up_ = false;
};

}  // namespace gradsync
