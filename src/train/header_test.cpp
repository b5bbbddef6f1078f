#include "train/header.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"
#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

// What an all-reduce leaves: 16-bit floats are added in f32 and round once, means are divided once.
class AllReduce {
 public:
  explicit AllReduce(const HeaderShape& shape)
      : shape_(shape),
        work_(kernels::work_of(shape.dtype, ReduceOp::sum)),
        sum_(shape.elements() * kernels::size_of(work_)),
        wide_(sum_.size()),
        narrow_(shape.elements() * size_of(shape.dtype)) {}

  void add(std::uint32_t rank, const HeaderMine& mine) {
    write_header(shape_, rank, mine, narrow_.data());
    kernels::widen(shape_.dtype, work_, wide_.data(), narrow_.data(), shape_.elements());
    kernels::combine(work_, ReduceOp::sum, sum_.data(), wide_.data(), shape_.elements());
  }
  HeaderSums read(bool averaged) {
    const ReduceOp op = averaged ? ReduceOp::avg : ReduceOp::sum;
    kernels::finish(shape_.dtype, op, work_, shape_.world, narrow_.data(), sum_.data(), shape_.elements());
    return read_header(shape_, narrow_.data(), averaged);
  }

 private:
  HeaderShape shape_;
  kernels::Work work_;
  std::vector<std::byte> sum_, wide_, narrow_;
};

// Every rank says `mine(rank)`; sums and means must both read as the exact sums.
template <class Mine>
void check(const HeaderShape& shape, const Mine& mine) {
  AllReduce reduction(shape);
  HeaderSums wanted;
  wanted.used.resize(shape.parameters);
  for (std::uint32_t rank = 0; rank < shape.world; ++rank) {
    const HeaderMine one = mine(rank);
    reduction.add(rank, one);
    wanted.samples += one.samples;
    wanted.ranks_run_out += one.run_out;
    wanted.ranks_not_finite += one.not_finite;
    wanted.ranks_order_differs += one.order_differs;
    wanted.ranks_failed += one.failed;
    for (std::size_t p = 0; p < one.used.size(); ++p) wanted.used[p] += one.used[p];
  }
  for (const bool averaged : {false, true}) {
    const HeaderSums found = reduction.read(averaged);
    EXPECT_EQ(found.samples, wanted.samples);
    EXPECT_EQ(found.ranks_run_out, wanted.ranks_run_out);
    EXPECT_EQ(found.ranks_not_finite, wanted.ranks_not_finite);
    EXPECT_EQ(found.ranks_order_differs, wanted.ranks_order_differs);
    EXPECT_EQ(found.ranks_failed, wanted.ranks_failed);
    EXPECT_EQ(found.used, wanted.used);
  }
}

HeaderMine all_of_it(std::uint32_t parameters) {
  return {(std::uint64_t{1} << 40) - 1, true, true, true, true, std::vector<bool>(parameters, true)};
}

HeaderMine random_mine(Random& random, std::uint32_t parameters) {
  HeaderMine mine{random.next() >> (24 + random.below(40)),
                  random.below(2) == 0,
                  random.below(9) == 0,
                  random.below(3) == 0,
                  random.below(50) == 0,
                  {}};
  for (std::uint32_t p = 0; p < parameters; ++p) mine.used.push_back(random.below(2) == 0);
  return mine;
}

const std::vector<std::uint32_t> kWorlds = {1,   2,   3,   4,   5,   7,   8,    16,   31,   32,   33,   63,   64,
                                            126, 127, 128, 129, 254, 255, 1000, 1022, 1023, 1024, 2047, 4999, 5000};

TEST(Header, IsExactWhenEveryRankSaysTheMost) {
  for (const DType dtype : kDTypes)
    for (const std::uint32_t world : kWorlds) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " world " + std::to_string(world));
      check({dtype, world, 3}, [](std::uint32_t) { return all_of_it(3); });
    }
}

TEST(Header, IsExactForAnythingThatRanksSay) {
  Random random(5);
  for (const DType dtype : kDTypes)
    for (const std::uint32_t world : kWorlds)
      for (const std::uint32_t parameters : {0u, 1u, 40u}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " world " + std::to_string(world));
        check({dtype, world, parameters}, [&](std::uint32_t) { return random_mine(random, parameters); });
      }
}

TEST(Header, IsExactForEveryCountOfRanksThatUsedAParameter) {  // every quotient that a mean may round
  for (const DType dtype : kDTypes)
    for (const std::uint32_t world : {127u, 1000u}) {
      AllReduce reduction({dtype, world, 1});
      for (std::uint32_t rank = 0; rank < world; ++rank) {
        HeaderMine mine{1, false, false, false, false, {true}};
        reduction.add(rank, mine);
        for (const bool averaged : {false, true}) ASSERT_EQ(reduction.read(averaged).used[0], rank + 1) << world;
      }
    }
}

TEST(Header, SaysNothingWhenNobodyDoes) {
  check({DType::bf16, 300, 5},
        [](std::uint32_t) { return HeaderMine{0, false, false, false, false, std::vector<bool>(5)}; });
}

TEST(Header, TakesOneLineInSmallWorldsAndWholeLinesAlways) {
  for (const DType dtype : kDTypes) {
    EXPECT_EQ((HeaderShape{dtype, 2, 1}.elements()) * size_of(dtype), 64u) << name_of(dtype);
    for (const std::uint32_t world : kWorlds)
      for (std::uint32_t parameters = 0; parameters < 70; ++parameters)
        EXPECT_EQ((HeaderShape{dtype, world, parameters}.elements()) * size_of(dtype) % 64, 0u);
  }
  EXPECT_EQ((HeaderShape{DType::f32, 4, 10}.elements()), 16u);
  EXPECT_EQ((HeaderShape{DType::f32, 4, 11}.elements()), 32u);
  EXPECT_EQ((HeaderShape{DType::f32, 5000, 7}.elements()), 16u);
}

TEST(HeaderDeath, RefusesMoreSamplesThanItsDigitsHold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> into(16);
  EXPECT_DEATH(
      write_header({DType::f32, 2, 0}, 0, {std::uint64_t{1} << 40, false, false, false, false, {}}, into.data()),
      "samples");
}

}  // namespace
}  // namespace gradsync
