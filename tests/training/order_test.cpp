// The order in which gradients become ready, and plans that follow it.
#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "model.hpp"

namespace gradsync::training {
namespace {

std::vector<Parameter> layers(std::size_t count) {
  std::vector<Parameter> model;
  for (std::size_t p = 0; p < count; ++p)
    model.push_back({"layer" + std::to_string(p), {200 + 10 * static_cast<std::int64_t>(p)}});
  return model;
}

using Order = std::vector<std::size_t>;
Order reverse_of(std::size_t count) {
  Order order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}
Order forward_of(std::size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}
Order shuffled(std::size_t count, std::uint64_t seed) {
  Order order = forward_of(count);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return mix64(seed + a) < mix64(seed + b); });
  return order;
}

void step_in(GradientSync& sync, std::uint64_t step, int rank, const Order& order) {
  sync.begin_step();
  for (std::size_t p : order) {
    fill(sync, p, step, rank);
    sync.ready(p);
  }
  sync.finish();
  sync.wait_all();
}

// Small buckets: every order that differs shows.
GradientSyncOptions small_buckets(bool forward = false) {
  GradientSyncOptions options;
  options.bucket_bytes = 2048;
  if (forward) options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  return options;
}

// The buckets' contents by the only thing that shows them: where gradients lie.
Order order_in_memory(const GradientSync& sync) {
  Order order = forward_of(sync.parameters().size());
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return sync.gradient(a).data < sync.gradient(b).data; });
  return order;
}

TEST(Order, FirstIsTheReverseOfTheRegistration) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, layers(12), small_buckets());
    EXPECT_EQ(order_in_memory(sync), reverse_of(12));
  });
}

TEST(Order, AnotherOrderThatAllSeeBecomesThePlanAtTheThirdStep) {
  for (const bool forward : {false, true})
    in_world({.size = 3}, [&](Communicator& comm) {
      GradientSync sync(comm, layers(12), small_buckets(forward));
      const Order order = shuffled(12, 5);
      for (std::uint64_t step = 0; step < 6; ++step) {
        step_in(sync, step, comm.rank(), order);
        expect_means(sync, step, comm.size());
        EXPECT_EQ(sync.replans(), step < 2 ? 0u : 1u);
      }
      EXPECT_EQ(order_in_memory(sync), order);
      EXPECT_EQ(sync.generation(), 2u);
    });
}

TEST(Order, ThatIsThePlansChangesNothing) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, layers(12), small_buckets());
    for (std::uint64_t step = 0; step < 6; ++step) step_in(sync, step, comm.rank(), reverse_of(12));
    EXPECT_EQ(sync.replans(), 0u);
    EXPECT_EQ(sync.generation(), 1u);
  });
}

TEST(Order, OfRanksThatDisagreeIsTheirMeanOrder) {
  in_world({.size = 3}, [](Communicator& comm) {
    GradientSync sync(comm, layers(6), small_buckets());
    // Positions of 0 … 5 on the ranks: 012345, 021345 and 120345; sums 1 4 4 9 12 15, the tie by number.
    const Order orders[] = {{0, 1, 2, 3, 4, 5}, {0, 2, 1, 3, 4, 5}, {2, 0, 1, 3, 4, 5}};
    for (std::uint64_t step = 0; step < 6; ++step) {
      step_in(sync, step, comm.rank(), orders[comm.rank()]);
      expect_means(sync, step, comm.size());
    }
    EXPECT_EQ(order_in_memory(sync), (Order{0, 2, 1, 3, 4, 5}));
  });
}

TEST(Order, ThatChangesLaterIsFollowed) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, layers(12), small_buckets());
    for (std::uint64_t step = 0; step < 5; ++step) step_in(sync, step, comm.rank(), reverse_of(12));
    for (std::uint64_t step = 5; step < 8; ++step) step_in(sync, step, comm.rank(), forward_of(12));
    EXPECT_EQ(sync.replans(), 1u);
    EXPECT_EQ(order_in_memory(sync), forward_of(12));
  });
}

// Each exchange doubles the number of steps until the next may come: 200 steps have room for 8.
TEST(Order, ThatNeverSettlesIsAskedForEverMoreRarely) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, layers(8), small_buckets());
    for (std::uint64_t step = 0; step < 200; ++step) {
      step_in(sync, step, comm.rank(), shuffled(8, step * 2 + static_cast<std::uint64_t>(comm.rank())));
      expect_means(sync, step, comm.size());
    }
    EXPECT_GE(sync.replans(), 2u);
    EXPECT_LE(sync.replans(), 9u);
  });
}

TEST(Order, IsKeptWhereReplanningIsOff) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options = small_buckets();
    options.replan = false;
    GradientSync sync(comm, layers(8), options);
    void* const place = sync.gradient(0).data;
    for (std::uint64_t step = 0; step < 6; ++step) {
      step_in(sync, step, comm.rank(), forward_of(8));
      expect_means(sync, step, comm.size());
    }
    EXPECT_EQ(sync.generation(), 1u);
    EXPECT_EQ(sync.gradient(0).data, place);
  });
}

TEST(Order, GradientsMoveAlongWithANewPlan) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, layers(8), small_buckets());
    for (std::uint64_t step = 0; step < 2; ++step) step_in(sync, step, comm.rank(), forward_of(8));
    const std::vector<std::byte> before = bytes_of(sync);
    sync.begin_step();
    EXPECT_EQ(sync.generation(), 2u);
    EXPECT_EQ(bytes_of(sync), before);
  });
}

TEST(Order, WhatWasAccumulatedBeforeANewPlanIsSentAfterIt) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options = small_buckets();
    options.find_unused = true;
    GradientSync sync(comm, layers(8), options);
    for (std::uint64_t step = 0; step < 2; ++step) step_in(sync, step, comm.rank(), forward_of(8));
    sync.set_synchronising(false);  // a pass whose gradients a later plan will move
    fill(sync, 3, 9, comm.rank());
    sync.ready(3);
    sync.set_synchronising(true);
    sync.begin_step();
    EXPECT_EQ(sync.generation(), 2u);
    sync.finish();
    expect_means_of(sync, 3, 9, 2);
    EXPECT_TRUE(sync.used(3));
    EXPECT_FALSE(sync.used(2));
  });
}

// Nothing is exposed in a world whose communication takes no time that a step would notice: an option, not a promise.
TEST(Order, OverlapWithForwardWaitsForTheMeasuredSteps) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options;
    options.overlap = Overlap::backward_forward;
    GradientSync sync(comm, layers(8), options);
    std::vector<bool> overlaps;
    for (std::uint64_t step = 0; step < 5; ++step) {
      step_in(sync, step, comm.rank(), reverse_of(8));
      expect_means(sync, step, comm.size());
      overlaps.push_back(sync.overlaps_forward());
    }
    EXPECT_FALSE(overlaps[0]);
    EXPECT_FALSE(overlaps[1]);
    std::vector<std::uint8_t> all(2);
    const std::uint8_t mine = overlaps[4];
    comm.all_gather(ConstView(&mine, 1, DType::u8), view(all));
    EXPECT_EQ(all[0], all[1]);
  });
}

}  // namespace
}  // namespace gradsync::training
