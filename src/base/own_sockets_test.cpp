#include "base/own_sockets.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace gradsync {
namespace {

constexpr int kDeadlineMilliseconds = 20'000;

struct Pair {
  Descriptor ours, theirs;
};

Pair connected() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {own_socket([&] { return ends[0]; }), Descriptor(ends[1])};
}

// Exit code of a forked child that runs `body`.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(OwnSockets, EndWithTheProcessThoughAChildLivesOn) {
  Pair pair = connected();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  pair.ours.reset();
  pollfd end{pair.theirs.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, kDeadlineMilliseconds), 1);
  char byte = 0;
  EXPECT_EQ(::recv(pair.theirs.get(), &byte, 1, MSG_DONTWAIT), 0) << "the end of the stream";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(OwnSockets, AreConnectedToNothingInAChildAndKeepTheirNumbers) {
  Pair pair = connected();
  EXPECT_EQ(in_child([&] {
              const int number = pair.ours.get();
              if (::fcntl(number, F_GETFD) != FD_CLOEXEC) return 1;
              if (::send(number, "x", 1, MSG_NOSIGNAL) >= 0 || errno != ENOTSOCK) return 2;
              const Descriptor other(::dup(0));
              pair.ours.reset();
              if (::fcntl(number, F_GETFD) >= 0) return 3;
              return ::fcntl(other.get(), F_GETFD) < 0 ? 4 : 0;
            }),
            0);
  EXPECT_EQ(::send(pair.ours.get(), "y", 1, MSG_NOSIGNAL), 1) << "the parent's is as it was";
  char byte = 0;
  EXPECT_EQ(::recv(pair.theirs.get(), &byte, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(byte, 'y');
}

TEST(OwnSockets, OfAChildAreItsOwn) {
  const Pair before = connected();
  EXPECT_EQ(in_child([] {
              Pair pair = connected();
              if (::send(pair.ours.get(), "x", 1, MSG_NOSIGNAL) != 1) return 1;
              return in_child([&] { return ::send(pair.ours.get(), "x", 1, MSG_NOSIGNAL) >= 0 ? 2 : 0; });
            }),
            0);
}

TEST(OwnSockets, LeaveTheirNumberToOthersWhenClosed) {
  Pair pair = connected();
  const int number = pair.ours.get();
  pair.ours.reset();
  ASSERT_EQ(::dup3(pair.theirs.get(), number, O_CLOEXEC), number);
  const Descriptor other(number);
  EXPECT_EQ(in_child([&] { return ::send(number, "x", 1, MSG_NOSIGNAL) < 0 && errno == ENOTSOCK ? 1 : 0; }), 0);
}

TEST(OwnSockets, ThatCannotBeOpenedSayWhy) {
  const Descriptor none = own_socket([] { return ::socket(-1, SOCK_STREAM, 0); });
  EXPECT_FALSE(none);
  EXPECT_EQ(errno, EAFNOSUPPORT);
}

}  // namespace
}  // namespace gradsync
