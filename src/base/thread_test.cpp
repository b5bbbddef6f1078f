#include "base/thread.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

sigset_t mask_here() {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

TEST(Thread, TakesFaultsOnly) {
  sigset_t inside;
  ::sigemptyset(&inside);
  start_without_signals([&inside] { inside = mask_here(); }).join();
  for (const int asked : {SIGTERM, SIGINT, SIGUSR1, SIGCHLD, SIGALRM, SIGRTMIN})
    EXPECT_EQ(::sigismember(&inside, asked), 1) << asked;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) EXPECT_EQ(::sigismember(&inside, fault), 0) << fault;
}

TEST(Thread, LeavesTheMakersMaskAsItWas) {
  sigset_t some, before;
  ::sigemptyset(&some);
  ::sigaddset(&some, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &some, &before);
  start_without_signals([] {}).join();
  const sigset_t after = mask_here();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(::sigismember(&after, SIGUSR2), 1);
  EXPECT_EQ(::sigismember(&after, SIGUSR1), 0);
}

}  // namespace
}  // namespace gradsync
