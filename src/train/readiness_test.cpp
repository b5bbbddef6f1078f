#include "train/readiness.hpp"

#include <gtest/gtest.h>

namespace gradsync {
namespace {

// Three items: parameters 3 and 2; the head of 1; its tail and 0.
Readiness three_items() {
  Readiness readiness({{2}, {1, 2}, {0}, {0}}, 3);
  return readiness;
}

// Launches what may go; returns how many items have left.
std::uint32_t launch_all(Readiness& readiness) {
  while (readiness.may_launch()) readiness.launched();
  return readiness.next();
}

TEST(Readiness, LaunchesAnItemWithItsLastGradient) {
  Readiness readiness = three_items();
  EXPECT_TRUE(readiness.mark(3, true, 1));
  EXPECT_EQ(launch_all(readiness), 0u);
  readiness.mark(2, true, 2);
  EXPECT_EQ(launch_all(readiness), 1u);
  readiness.mark(1, true, 3);
  EXPECT_EQ(launch_all(readiness), 2u);
  readiness.mark(0, true, 4);
  EXPECT_EQ(launch_all(readiness), 3u);
  EXPECT_TRUE(readiness.all_launched());
  EXPECT_FALSE(readiness.order_differs());
  EXPECT_EQ(readiness.item_ready_s(0), 2);
  EXPECT_EQ(readiness.item_ready_s(2), 4);
}

TEST(Readiness, KeepsItemsInOrderWhenGradientsAreNot) {
  Readiness readiness = three_items();
  for (const std::uint32_t p : {0u, 1u, 2u}) {
    readiness.mark(p, true, 1);
    EXPECT_EQ(launch_all(readiness), 0u);
  }
  EXPECT_TRUE(readiness.order_differs());
  readiness.mark(3, true, 2);
  EXPECT_EQ(launch_all(readiness), 3u);
  const auto order = readiness.order();
  EXPECT_EQ(std::vector<std::uint32_t>(order.begin(), order.end()), (std::vector<std::uint32_t>{0, 1, 2, 3}));
}

TEST(Readiness, OrderWithinAnItemDoesNotMatter) {
  Readiness readiness = three_items();
  readiness.mark(2, true, 1);
  readiness.mark(3, true, 1);
  EXPECT_FALSE(readiness.order_differs());
}

TEST(Readiness, MarksAParameterOnce) {
  Readiness readiness = three_items();
  EXPECT_TRUE(readiness.mark(1, true, 1));
  EXPECT_FALSE(readiness.mark(1, true, 1));
  readiness.begin_step();
  EXPECT_FALSE(readiness.any_marked());
  EXPECT_TRUE(readiness.mark(1, true, 1));
}

TEST(Readiness, UnusedGradientsHaveNoPlaceInTheOrder) {
  Readiness readiness = three_items();
  readiness.mark(0, false, 1);
  EXPECT_TRUE(readiness.order().empty());
  EXPECT_FALSE(readiness.order_differs());
  EXPECT_FALSE(readiness.used(0));
}

TEST(Readiness, WhatWasAccumulatedCountsUntilAStepHasSent) {
  Readiness readiness = three_items();
  readiness.accumulate(1);
  readiness.begin_step();
  readiness.mark(1, false, 1);
  EXPECT_TRUE(readiness.used(1));
  readiness.end_step();
  readiness.begin_step();
  EXPECT_FALSE(readiness.used(1));
}

TEST(Readiness, AParameterInNoItemIsReadyAllTheSame) {
  Readiness readiness({{}, {0}}, 1);
  EXPECT_TRUE(readiness.mark(0, true, 1));
  readiness.mark(1, true, 2);
  EXPECT_EQ(launch_all(readiness), 1u);
}

}  // namespace
}  // namespace gradsync
