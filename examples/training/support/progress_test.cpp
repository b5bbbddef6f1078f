#include "support/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace training {
namespace {

using ::testing::HasSubstr;

// What is written to the stream that it is given.
template <class Write>
std::string written(Write write) {
  char* data = nullptr;
  std::size_t bytes = 0;
  std::FILE* file = open_memstream(&data, &bytes);
  write(file);
  std::fclose(file);
  const std::unique_ptr<char, void (*)(void*)> owner(data, std::free);
  return {data, bytes};
}

void count_to_forty(Progress& progress) {
  for (std::uint64_t done = 1; done <= 40; ++done)
    progress.show({"epoch 1/1", "loss 0.5", done, 40, static_cast<double>(done)});
}

TEST(Progress, TellsShareFiguresAndTimeLeft) {
  EXPECT_EQ(progress_line({"epoch 1/2", "loss 0.5", 25, 100, 10}, 8),
            "epoch 1/2 [##------]  25 %  loss 0.5  30 s left");
}

TEST(Progress, LeavesTheTimeOutAtTheEndAndBeforeThereIsGroundForIt) {
  EXPECT_EQ(progress_line({"all", "", 100, 100, 10}, 0), "all 100 %");
  EXPECT_EQ(progress_line({"all", "", 1, 100, 0.01}, 0), "all   1 %");
}

TEST(Progress, SurvivesATotalOfNothing) { EXPECT_EQ(progress_line({"all", "", 0, 0, 0}, 4), "all [####] 100 %"); }

TEST(Progress, WritesTenPlainLinesWhereItIsNoTerminal) {
  const auto text = written([](std::FILE* file) {
    Progress progress(file, false, false);
    count_to_forty(progress);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(Progress, RedrawsOneLineOnATerminal) {
  const auto text = written([](std::FILE* file) {
    Progress progress(file, true, false);
    count_to_forty(progress);
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_THAT(text, HasSubstr("\r"));
}

TEST(Progress, SaysNothingWhereItIsSilent) {
  const auto text = written([](std::FILE* file) {
    Progress progress(file, true, true);
    count_to_forty(progress);
    progress.line("a line");
  });
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace training
