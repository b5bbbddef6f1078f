// A hook in place of the exchange of each bucket.
#include <atomic>

#include "model.hpp"

namespace gradsync::training {
namespace {

class Plain final : public BucketExchange {
 public:
  explicit Plain(const GradientBucket& bucket)
      : work_(bucket.communicator->all_reduce_async(bucket.gradients, ReduceOp::avg)) {}
  bool done() override { return work_.done(); }
  void wait() override { work_.wait(); }

 private:
  Work work_;
};

GradientSyncOptions hooked(BucketHook hook) {
  GradientSyncOptions options;
  options.bucket_bytes = 3000;
  options.hook = std::move(hook);
  return options;
}

TEST(Hooks, ReplaceTheExchangeAndSeeEveryParameterInOrder) {
  for (const std::uint32_t size : {1u, 2u, 3u})
    in_world({.size = size}, [&](Communicator& comm) {
      std::vector<std::uint32_t> indices, lasts;
      std::vector<bool> seen(small_model().size());
      GradientSync sync(comm, small_model(), hooked([&](const GradientBucket& bucket) {
                          indices.push_back(bucket.index);
                          if (bucket.last) lasts.push_back(bucket.index);
                          for (std::uint32_t p : bucket.parameters) seen[p] = true;
                          return std::make_unique<Plain>(bucket);
                        }));
      for (std::uint64_t step = 0; step < 4; ++step) {
        indices.clear();
        sync.begin_step();
        backward(sync, step, comm.rank());
        sync.finish();
        expect_means(sync, step, comm.size());
        ASSERT_EQ(indices.size(), sync.bucket_count());
        for (std::uint32_t i = 0; i < indices.size(); ++i) EXPECT_EQ(indices[i], i);
        EXPECT_EQ(lasts.back(), indices.back());
      }
      for (std::size_t p = 0; p < seen.size(); ++p) EXPECT_TRUE(seen[p]) << p;
    });
}

TEST(Hooks, WorkWithWeightsAndUnusedParameters) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSyncOptions options = hooked([](const GradientBucket& bucket) { return std::make_unique<Plain>(bucket); });
    options.weighted = options.find_unused = true;
    GradientSync sync(comm, small_model(), options);
    for (std::uint64_t step = 0; step < 3; ++step) {
      sync.begin_step();
      sync.set_samples(comm.rank() == 0 ? 1 : 3);
      fill(sync, 4, step, comm.rank());
      sync.ready(4);
      sync.finish();
      expect_means_of(sync, 4, step, 2, {1, 3}, 8);
      EXPECT_TRUE(sync.used(4));
      EXPECT_FALSE(sync.used(5));
    }
  });
}

TEST(Hooks, WhatOneThrowsReachesEveryRankAtFinish) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, small_model(), hooked([&](const GradientBucket& bucket) {
                        if (comm.rank() == 1 && bucket.index == 2) throw std::runtime_error("no codec");
                        return std::make_unique<Plain>(bucket);
                      }));
    sync.begin_step();
    backward(sync, 0, comm.rank());
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_EQ(status.code, comm.rank() == 1 ? ErrorCode::internal : ErrorCode::aborted);
    EXPECT_NE(status.message.find("no codec"), std::string::npos) << status.message;
    EXPECT_EQ(thrown_by([&] { sync.begin_step(); }).message, status.message);
  });
}

}  // namespace
}  // namespace gradsync::training
