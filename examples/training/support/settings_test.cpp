#include "support/settings.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace training {
namespace {

TEST(PositiveNumber, RefusesWhatComparesWithNothing) {
  const CLI::Validator check = positive_number();
  for (std::string text : {"0.1", "3", "1e-9"}) EXPECT_EQ(check(text), "") << text;
  for (std::string text : {"nan", "inf", "0", "-1", "a"}) EXPECT_NE(check(text), "") << text;
}

TEST(RequireEqualSettings, NamesTheFirstThatDiffersOnEveryRank) {
  auto ranks = gradsync::Communicator::threads(3);
  std::vector<std::string> said(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        require_equal_settings({{"--batch", 32}, {"--seed", r == 2 ? 7.0 : 1.0}}, ranks[r]);
      } catch (const std::invalid_argument& error) { said[r] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : said)
    EXPECT_EQ(text, "--seed is 7 on rank 2 and 1 on rank 0, expected the same on every rank");
}

TEST(RequireEqualSettings, IsContentWithEqualOnes) {
  auto ranks = gradsync::Communicator::threads(1);
  EXPECT_NO_THROW(require_equal_settings({{"--batch", 32}}, ranks[0]));
}

}  // namespace
}  // namespace training
