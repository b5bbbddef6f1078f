#include "data/text_data.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/data_error.hpp"
#include "data/test_files.hpp"

namespace training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of(const TestFolder& folder, std::vector<const char*> names) {
  try {
    load_text(folder.path(), names);
    return "";
  } catch (const DataError& error) { return error.what(); }
}

TEST(Text, JoinsItsFilesInOrder) {
  const TestFolder folder;
  folder.text("b", "second");
  folder.text("a", "first ");
  const std::vector<const char*> names = {"a", "b"};
  EXPECT_EQ(load_text(folder.path(), names), "first second");
}

TEST(Text, NamesTheFileAndDebiansPackageWhereItIsMissing) {
  const TestFolder folder;
  EXPECT_THAT(error_of(folder, {"literature"}), AllOf(HasSubstr("literature: no such file"), HasSubstr("'fortunes'")));
}

TEST(Text, RefusesWhatIsEmptyOrNotText) {
  const TestFolder folder;
  folder.text("empty", "");
  folder.text("binary", std::string("a\0b", 3));
  EXPECT_THAT(error_of(folder, {"empty"}), HasSubstr("is empty"));
  EXPECT_THAT(error_of(folder, {"binary"}), HasSubstr("zero byte"));
}

TEST(Tokeniser, DecodesWhatItEncoded) {
  const std::string text = "caf\xc3\xa9 b\n%";
  const Tokeniser tokeniser(text);
  EXPECT_EQ(tokeniser.size(), 9);
  const auto tokens = tokeniser.encode(text);
  EXPECT_EQ(tokens.min().item<std::int64_t>(), 0);
  EXPECT_EQ(tokens.max().item<std::int64_t>(), 8);
  EXPECT_EQ(tokeniser.decode({tokens.data_ptr<std::int64_t>(), text.size()}), text);
}

TEST(Tokeniser, NamesACharacterItDoesNotKnow) {
  const Tokeniser tokeniser("abc");
  try {
    tokeniser.encode("abd");
    FAIL() << "expected an error";
  } catch (const std::out_of_range& error) { EXPECT_THAT(error.what(), HasSubstr("character 2 (byte 100)")); }
}

TEST(TextWindows, PairEveryTokenWithTheNextOne) {
  const TextWindows windows(torch::arange(10), 3);
  ASSERT_EQ(windows.size(), 3u);  // 0-2, 3-5, 6-8; 9 is only a target
  const std::vector<std::size_t> chosen = {2};
  const auto batch = windows.batch(chosen);
  EXPECT_TRUE(batch.tokens.equal(torch::tensor({{6, 7, 8}}, torch::kInt64)));
  EXPECT_TRUE(batch.targets.equal(torch::tensor({{7, 8, 9}}, torch::kInt64)));
}

TEST(TextWindows, RefuseATextThatIsShorterThanOne) {
  EXPECT_THROW(TextWindows(torch::arange(3), 3), std::invalid_argument);
  EXPECT_THROW(TextWindows(torch::arange(3), 0), std::invalid_argument);
}

}  // namespace
}  // namespace training
