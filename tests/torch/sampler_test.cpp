#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "gradsync/error.hpp"
#include "gradsync/torch/distributed_sampler.hpp"

namespace {

using gradsync::torch::DistributedSampler;
using gradsync::torch::DistributedSamplerOptions;
using Shares = DistributedSamplerOptions::Shares;
using Indices = std::vector<std::size_t>;

Indices take_all(DistributedSampler& sampler, std::size_t batch) {
  Indices all;
  while (auto part = sampler.next(batch)) {
    EXPECT_TRUE(!part->empty() && part->size() <= batch);
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

std::vector<Indices> shares_of(std::size_t samples, int size, DistributedSamplerOptions options, std::uint64_t epoch) {
  std::vector<Indices> all;
  for (int rank = 0; rank < size; ++rank) {
    DistributedSampler sampler(samples, rank, size, options);
    sampler.set_epoch(epoch);
    sampler.reset();
    all.push_back(take_all(sampler, 3));
    EXPECT_EQ(all.back().size(), sampler.share());
  }
  return all;
}

Indices sorted_union(const std::vector<Indices>& shares) {
  Indices all;
  for (const Indices& share : shares) all.insert(all.end(), share.begin(), share.end());
  std::sort(all.begin(), all.end());
  return all;
}

Indices up_to(std::size_t count) {
  Indices all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

TEST(DistributedSampler, LosesAndRepeatsNoSample) {
  for (int size = 1; size <= 9; ++size)
    for (std::size_t samples = 0; samples <= 40; ++samples)
      for (const bool shuffle : {false, true}) {
        const auto shares = shares_of(samples, size, {.seed = 5, .shuffle = shuffle}, samples);
        EXPECT_EQ(sorted_union(shares), up_to(samples)) << size << " ranks, " << samples << " samples";
        EXPECT_LE(shares.front().size() - shares.back().size(), 1u);
      }
}

TEST(DistributedSampler, MakesEvenSharesByRepeatingFromTheStart) {
  for (int size = 1; size <= 9; ++size)
    for (std::size_t samples = 1; samples <= 40; ++samples) {
      const auto whole = shares_of(samples, 1, {.seed = 5}, 2).front();
      const auto shares = shares_of(samples, size, {.seed = 5, .shares = Shares::even_by_repeating}, 2);
      const std::size_t each = (samples + static_cast<std::size_t>(size) - 1) / static_cast<std::size_t>(size);
      for (std::size_t rank = 0; rank < shares.size(); ++rank) {
        ASSERT_EQ(shares[rank].size(), each);
        for (std::size_t k = 0; k < each; ++k) EXPECT_EQ(shares[rank][k], whole[(k * shares.size() + rank) % samples]);
      }
    }
}

TEST(DistributedSampler, MakesEvenSharesByDroppingTheLast) {
  for (int size = 1; size <= 9; ++size)
    for (std::size_t samples = 0; samples <= 40; ++samples) {
      const auto shares = shares_of(samples, size, {.shuffle = false, .shares = Shares::even_by_dropping}, 0);
      const std::size_t each = samples / static_cast<std::size_t>(size);
      for (const Indices& share : shares) EXPECT_EQ(share.size(), each);
      EXPECT_EQ(sorted_union(shares), up_to(each * static_cast<std::size_t>(size)));
    }
}

TEST(DistributedSampler, GivesTheBatchesOfOneProcess) {
  constexpr std::size_t samples = 37, batch = 4;
  constexpr int size = 3;
  const Indices whole = shares_of(samples, 1, {.seed = 9}, 6).front();
  std::vector<DistributedSampler> samplers;
  for (int rank = 0; rank < size; ++rank)
    samplers.emplace_back(samples, rank, size, DistributedSamplerOptions{.seed = 9});
  samplers[0].set_epoch(6);
  samplers[1].set_epoch(6);
  samplers[2].set_epoch(6);
  for (std::size_t begin = 0; begin < samples; begin += batch * size) {
    Indices together;
    for (auto& sampler : samplers)
      if (auto part = sampler.next(batch)) together.insert(together.end(), part->begin(), part->end());
    Indices expected(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                     whole.begin() + static_cast<std::ptrdiff_t>(std::min(samples, begin + batch * size)));
    std::sort(together.begin(), together.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(together, expected) << "from " << begin;
  }
}

TEST(DistributedSampler, OrdersEpochsDifferentlyAndEachTheSameAgain) {
  const auto first = shares_of(100, 2, {.seed = 1}, 0), second = shares_of(100, 2, {.seed = 1}, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, shares_of(100, 2, {.seed = 1}, 0));
  EXPECT_NE(first, shares_of(100, 2, {.seed = 2}, 0));
}

TEST(DistributedSampler, ReachesTheCopyOfADataLoader) {
  DistributedSampler mine(50, 0, 2, {.seed = 3});
  DistributedSampler copy = mine;
  copy.reset();
  const Indices before = take_all(copy, 50);
  mine.set_epoch(1);
  copy.reset();
  EXPECT_NE(take_all(copy, 50), before);
  EXPECT_EQ(copy.epoch(), 1u);
}

TEST(DistributedSampler, ResumesWhereItWasSaved) {
  DistributedSampler saved(30, 1, 2, {.seed = 4});
  saved.set_epoch(8);
  saved.reset();
  static_cast<void>(saved.next(6));
  torch::serialize::OutputArchive out;
  saved.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  DistributedSampler resumed(30, 1, 2, {.seed = 4});
  resumed.load(in);
  EXPECT_EQ(take_all(resumed, 30), take_all(saved, 30));
}

TEST(DistributedSampler, RefusesAForeignRankAndAForeignState) {
  EXPECT_THROW(DistributedSampler(10, 2, 2), gradsync::Error);
  EXPECT_THROW(DistributedSampler(10, 0, 0), gradsync::Error);
  DistributedSampler saved(30, 0, 2);
  torch::serialize::OutputArchive out;
  saved.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  DistributedSampler other(31, 0, 2);
  EXPECT_THROW(other.load(in), gradsync::Error);
}

}  // namespace
