// Programs that a test starts, reads from, and surely ends.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "cli/descendants.hpp"
#include "cli/environment.hpp"
#include "cli/launcher.hpp"
#include "cli/spawn.hpp"

namespace gradsync::cli {

inline constexpr auto test_patience = std::chrono::seconds(20);  // when something hangs; never waited for otherwise

// Whether the process has ended, waiting for it if need be.
inline bool has_ended(const Descriptor& process) {
  pollfd watch{process.get(), POLLIN, 0};
  const Deadline deadline = Deadline::after(test_patience);
  return !process || ::poll(&watch, 1, deadline.poll_milliseconds()) == 1;
}

// A started program in its own process group. Killed with this object.
class TestProgram {
 public:
  explicit TestProgram(std::vector<std::string> command, std::vector<std::string> environment = current_environment()) {
    auto started = spawn({command.at(0), command, std::move(environment), 0});
    EXPECT_TRUE(started.ok()) << started.status().message;
    if (started.ok()) worker_ = std::move(*started);
  }
  ~TestProgram() {
    if (worker_.pid > 0) ::kill(worker_.pid, SIGKILL), ::waitpid(worker_.pid, nullptr, 0);
  }
  TestProgram(const TestProgram&) = delete;
  TestProgram& operator=(const TestProgram&) = delete;

  pid_t pid() const { return worker_.pid; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

  // Reads both streams until `ready`, or their end, or the patience is over.
  template <class Ready>
  bool read_until(Ready&& ready) {
    const Deadline deadline = Deadline::after(test_patience);
    while (!ready() && (worker_.out || worker_.err) && !deadline.passed()) {
      pollfd watch[2] = {{worker_.out.get(), POLLIN, 0}, {worker_.err.get(), POLLIN, 0}};
      ::poll(watch, 2, deadline.poll_milliseconds());
      read_from(worker_.out, out_);
      read_from(worker_.err, err_);
    }
    return ready();
  }
  // Its exit code, as the shells count it, after all of its output is read.
  int finish() {
    read_until([] { return false; });
    EXPECT_TRUE(has_ended(worker_.process));
    int status = 0;
    EXPECT_EQ(::waitpid(worker_.pid, &status, WNOHANG), worker_.pid);
    worker_.pid = -1;
    return exit_code_of(status);
  }

 private:
  static void read_from(Descriptor& pipe, std::string& text) {
    char chunk[65536];
    for (ssize_t got; pipe && (got = ::read(pipe.get(), chunk, sizeof chunk)) >= 0;) {
      if (got == 0) pipe.reset();
      text.append(chunk, static_cast<std::size_t>(got));
    }
  }
  Worker worker_;
  std::string out_, err_;
};

// The numbers that stand after `word` in a text.
inline std::vector<pid_t> numbers_after(const std::string& text, const std::string& word) {
  std::vector<pid_t> numbers;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
    if (text.find('\n', at) != std::string::npos) numbers.push_back(std::atoi(text.c_str() + at + word.size()));
  return numbers;
}

// A file in memory to write to.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("test", MFD_CLOEXEC)) {}
  int descriptor() const { return file_.get(); }
  std::string text() const {
    std::string all(static_cast<std::size_t>(::lseek(file_.get(), 0, SEEK_END)), '\0');
    EXPECT_EQ(::pread(file_.get(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
    return all;
  }

 private:
  Descriptor file_;
};

}  // namespace gradsync::cli
