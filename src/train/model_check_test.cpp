#include "train/model_check.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace gradsync {
namespace {

using namespace std::chrono_literals;
using Model = std::vector<Parameter>;

const Model kModel = {{"conv.weight", {8, 3, 3, 3}}, {"conv.bias", {8}}, {"temperature", {}, DType::f64}};

// What each rank of a world is told when rank r holds models[r]; "" if it is content.
std::vector<std::string> told(const std::vector<Model>& models) {
  Options options;
  options.timeout = 20s;
  std::vector<Communicator> ranks = Communicator::threads(static_cast<std::uint32_t>(models.size()), options);
  std::vector<std::string> texts(models.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < models.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        check_same_model(ranks[r], models[r], "parameters");
      } catch (const Error& error) {
        texts[r] = error.what();
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_NE(error.peer(), static_cast<int>(r));
      }
      ranks[r].barrier();  // goes on whatever it found
    });
  for (std::thread& thread : threads) thread.join();
  return texts;
}

// Rank `odd` of worlds of 2 to 4 holds `changed`, the others kModel: every rank is told the same.
void check(const Model& changed, const std::string& wanted_of_rank_1) {
  for (std::size_t world = 2; world <= 4; ++world) {
    std::vector<Model> models(world, kModel);
    models[1] = changed;
    EXPECT_EQ(told(models), std::vector<std::string>(world, wanted_of_rank_1));
  }
}

TEST(ModelCheck, AcceptsEqualModelsOfAnySize) {
  for (std::size_t world = 1; world <= 4; ++world) {
    EXPECT_EQ(told(std::vector<Model>(world, kModel)), std::vector<std::string>(world));
    EXPECT_EQ(told(std::vector<Model>(world, Model{})), std::vector<std::string>(world));
  }
}

TEST(ModelCheck, NamesBothCountsWhereOneRankHasAParameterMore) {
  Model changed = kModel;
  changed.push_back({"extra", {5}});
  check(changed,
        "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 4; the first that differs is number 3: nothing "
        "against extra (f32 [5])");
}

TEST(ModelCheck, ComparesNames) {
  Model changed = kModel;
  changed[1].name = "conv.offset";
  check(changed,
        "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 3; the first that differs is number 1: conv.bias "
        "(f32 [8]) against conv.offset (f32 [8])");
}

TEST(ModelCheck, ComparesShapes) {
  Model changed = kModel;
  changed[0].shape = {8, 3, 9};
  check(
      changed,
      "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 3; the first that differs is number 0: conv.weight "
      "(f32 [8, 3, 3, 3]) against conv.weight (f32 [8, 3, 9])");
}

TEST(ModelCheck, ComparesDTypesAndSparseness) {
  Model changed = kModel;
  changed[2].dtype = DType::bf16;
  check(
      changed,
      "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 3; the first that differs is number 2: temperature "
      "(f64 []) against temperature (bf16 [])");
  changed = kModel;
  changed[1].sparse = true;
  check(changed,
        "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 3; the first that differs is number 1: conv.bias "
        "(f32 [8]) against conv.bias (f32 [8], sparse)");
}

TEST(ModelCheck, ComparesTheOrder) {
  Model changed = kModel;
  std::swap(changed[1], changed[2]);
  check(changed,
        "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 3; the first that differs is number 1: conv.bias "
        "(f32 [8]) against temperature (f64 [])");
}

TEST(ModelCheck, SeesAModelWithoutParameters) {
  check(
      {},
      "model: rank 0 (thread) has 3 parameters, rank 1 (thread) has 0; the first that differs is number 0: conv.weight "
      "(f32 [8, 3, 3, 3]) against nothing");
}

TEST(ModelCheck, NamesTheLowestRankThatDiffers) {
  Model changed = kModel;
  changed.pop_back();
  const std::string wanted =
      "model: rank 0 (thread) has 3 parameters, rank 2 (thread) has 2; the first that differs is number 2: temperature "
      "(f64 []) against nothing";
  EXPECT_EQ(told({kModel, kModel, changed, {}}), std::vector<std::string>(4, wanted));
}

TEST(Parameter, CountsElementsAndRefusesShapesThatCannotBe) {
  EXPECT_EQ((Parameter{"a", {}}.elements()), 1u);
  EXPECT_EQ((Parameter{"a", {3, 0, 5}}.elements()), 0u);
  EXPECT_EQ((Parameter{"a", {3, 4, 5}}.elements()), 60u);
  EXPECT_THROW((void)(Parameter{"a", {3, -1}}.elements()), Error);
  EXPECT_THROW((void)(Parameter{"a", {std::int64_t{1} << 40, std::int64_t{1} << 40}}.elements()), Error);
}

}  // namespace
}  // namespace gradsync
