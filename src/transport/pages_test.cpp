// Registered memory that was shown is found again when its pages are replaced.
#include "transport/pages.hpp"

#include <gtest/gtest.h>

#include "transport/pages_for_test.hpp"

namespace gradsync {
namespace {

TEST(LastPages, FindTheTwoThatWereShownLastEvenWhenTheyAreNotWhole) {
  std::vector<std::shared_ptr<const Pages>> pages;
  LastPages last;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    auto made = Pages::create(id, 8192);
    ASSERT_TRUE(made.ok());
    pages.push_back(*made);
  }
  const auto found = [&](std::size_t i) { return last.find(pages[i]->bytes().subspan(100, 50)) == pages[i]; };
  EXPECT_FALSE(found(0));
  for (const std::size_t i : {0u, 1u, 0u, 1u, 1u}) last.add(pages[i]);
  EXPECT_TRUE(found(0) && found(1));
  pages[0]->replace(pages[0]->bytes().first(4096));
  EXPECT_TRUE(found(0)) << "the rest of it may have to be replaced as well";
  EXPECT_EQ(last.find(pages[0]->bytes().subspan(8000)), pages[0]);
  EXPECT_EQ(last.find({pages[0]->bytes().data() + 8000, 193}), nullptr) << "beyond its end";
  last.add(pages[0]);
  last.add(pages[2]);  // in the place of the one that was shown earlier
  EXPECT_TRUE(found(0) && found(2) && !found(1));
  const std::span<const std::byte> gone = pages[2]->bytes();
  pages.pop_back();
  EXPECT_EQ(last.find(gone.first(10)), nullptr) << "it was kept alive";
}

}  // namespace
}  // namespace gradsync
