// How long waits end: with a spin where it pays, asleep at once where it does not.
#include "comm/patience.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

using Rest = Patience::Rest;

// The idle looks of one wait up to the sleep.
int looks_before_sleep(Patience& patience, bool is_long) {
  if (is_long) patience.expect_long_wait();
  int looks = 0;
  while (patience.after_idle_look() != Rest::sleep) ++looks;
  return looks;
}

void end_wait_in_spin(Patience& patience) {
  patience.expect_long_wait();
  patience.after_idle_look();
  patience.something_moved();
}

TEST(Patience, SleepsAtOnceInLongWaitsAfterSpinsThatDidNotPay) {
  LongWaits long_waits;
  Patience patience(true, long_waits);
  int spins = 0;
  for (int wait = 0; wait < 160; ++wait) {
    spins += looks_before_sleep(patience, true) > 0;
    patience.something_moved();
  }
  EXPECT_EQ(spins, 2 + 158 / 16);  // two to learn it, then one in sixteen
}

TEST(Patience, SpinsAgainOnceThatPays) {
  LongWaits long_waits;
  Patience patience(true, long_waits);
  for (int wait = 0; wait < 2; ++wait) looks_before_sleep(patience, true), patience.something_moved();
  for (int wait = 0; wait < 16; ++wait) end_wait_in_spin(patience);  // one of them spins
  EXPECT_GT(looks_before_sleep(patience, true), 0);
}

TEST(Patience, SpinsInShortWaitsWhateverLongOnesShowed) {
  LongWaits long_waits;
  Patience patience(true, long_waits);
  for (int wait = 0; wait < 10; ++wait) looks_before_sleep(patience, true), patience.something_moved();
  EXPECT_GT(looks_before_sleep(patience, false), static_cast<int>(limits::yields_before_sleep));
}

TEST(Patience, SleepsOnUntilSomethingMoves) {
  LongWaits long_waits;
  Patience patience(false, long_waits);
  looks_before_sleep(patience, false);
  EXPECT_FALSE(patience.fresh());
  EXPECT_EQ(patience.after_idle_look(), Rest::sleep);
  patience.something_moved();
  EXPECT_TRUE(patience.fresh());
  EXPECT_NE(patience.after_idle_look(), Rest::sleep);
}

}  // namespace
}  // namespace gradsync
