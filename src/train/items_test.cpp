#include "train/items.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradsync {
namespace {

using Order = std::vector<std::uint32_t>;

// Dense 0, 2, 3; sparse 1 and 4.
std::vector<Parameter> parameters() {
  return {{"d0", {64}}, {"s1", {9, 2}, DType::f32, true}, {"d2", {64}}, {"d3", {64}}, {"s4", {9, 2}, DType::f32, true}};
}

Layout layout_of(const std::vector<Parameter>& model, const Order& order) {
  PlanQuery query;
  query.parameters = model;
  query.bucket_bytes = 256;
  query.world = 2;
  return make_layout(query, order);
}

// 'b' a bucket, 's' a sparse gradient.
std::string drawn(const Layout& layout) {
  std::string text;
  for (const Item& item : layout.items) text += item.sparse ? 's' : 'b';
  return text;
}

TEST(Items, DenseParametersKeepTheirOrder) {
  EXPECT_EQ(dense_of(parameters(), Order{4, 3, 1, 0, 2}), (Order{3, 0, 2}));
}

TEST(Items, ASparseGradientGoesWhenThoseBeforeItCanHaveGone) {
  const std::vector<Parameter> model = parameters();
  const Layout layout = layout_of(model, {4, 3, 2, 1, 0});
  EXPECT_EQ(layout.items.front().index, 4u);
  EXPECT_TRUE(layout.items.front().sparse);
  const std::string items = drawn(layout);
  EXPECT_EQ(std::count(items.begin(), items.end(), 's'), 2);
  EXPECT_EQ(items.back(), 'b');  // parameter 0 is the last to be ready
}

TEST(Items, SparseGradientsThatComeLastGoLast) {
  const std::vector<Parameter> model = parameters();
  const std::string items = drawn(layout_of(model, {0, 2, 3, 1, 4}));
  EXPECT_EQ(items.substr(items.size() - 2), "ss");
}

TEST(Items, EveryBucketIsSentOnceAndEveryParameterIsHeld) {
  const std::vector<Parameter> model = parameters();
  const Layout layout = layout_of(model, {4, 3, 2, 1, 0});
  std::vector<std::uint32_t> buckets;
  for (const Item& item : layout.items)
    if (!item.sparse) buckets.push_back(item.index);
  Order expected(layout.plan.buckets.size());
  for (std::uint32_t b = 0; b < expected.size(); ++b) expected[b] = b;
  EXPECT_EQ(buckets, expected);
  for (std::size_t p = 0; p < model.size(); ++p) {
    ASSERT_FALSE(layout.held_by[p].empty()) << p;
    EXPECT_TRUE(std::is_sorted(layout.held_by[p].begin(), layout.held_by[p].end()));
  }
}

}  // namespace
}  // namespace gradsync
