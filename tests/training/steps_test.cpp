// Whole steps: every rank ends with the mean, whatever the model, the world and the way.
#include <thread>

#include "model.hpp"

namespace gradsync::training {
namespace {

void run_steps(const World& world, const std::vector<Parameter>& model, const GradientSyncOptions& options,
               std::uint64_t steps) {
  in_world(world, [&](Communicator& comm) {
    GradientSync sync(comm, model, options);
    for (std::uint64_t step = 1; step <= steps; ++step) {
      sync.begin_step();
      backward(sync, step, comm.rank());
      sync.finish();
      sync.wait_all();
      expect_means(sync, step, comm.size());
      for (std::size_t p = 0; p < model.size(); ++p) {
        EXPECT_TRUE(sync.used(p));
        EXPECT_TRUE(sync.complete(p));
      }
    }
  });
}

TEST(Steps, EveryRankEndsWithTheMean) {
  for (const std::uint32_t size : {1u, 2u, 3u, 5u}) run_steps({.size = size}, small_model(), {}, 5);
}

TEST(Steps, EveryRankEndsWithTheMeanOverEveryTransport) {
  for (const Medium medium : cases::kMedia) run_steps({.size = 3, .medium = medium}, small_model(), {}, 5);
}

TEST(Steps, GradientsOfAllTypesMix) {
  for (const std::uint32_t size : {1u, 2u, 3u}) run_steps({.size = size}, mixed_model(), {.bucket_bytes = 2000}, 4);
}

TEST(Steps, AParameterLargerThanABucketIsSplit) {
  in_world({.size = 3}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), {.bucket_bytes = 4096, .lanes = 3});
    EXPECT_GT(sync.bucket_count(), 64u * 301 * 4 / 4096);
  });
  run_steps({.size = 3}, small_model(), {.bucket_bytes = 4096, .lanes = 3}, 4);
}

TEST(Steps, TenThousandTinyParametersFit) { run_steps({.size = 2}, many_parameters(10000), {}, 4); }

// As an engine for automatic differentiation does: its own threads call, while the one that will finish waits for them.
TEST(Steps, GradientsMayBecomeReadyInSeveralOtherThreads) {
  for (const bool forward : {false, true})
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSyncOptions options;
      options.bucket_bytes = 1000;
      options.overlap = forward ? Overlap::backward_forward : Overlap::backward;
      options.overlap_only_if_worth_it = false;
      GradientSync sync(comm, many_parameters(200), options);
      for (std::uint64_t step = 0; step < 20; ++step) {
        sync.begin_step();
        const auto every_other = [&](std::size_t from) {
          for (std::size_t p = from; p < 200; p += 2) {
            fill(sync, p, step, comm.rank());
            sync.ready(p);
          }
        };
        sync.begin_backward();
        std::thread even(every_other, 0), odd(every_other, 1);
        even.join();
        odd.join();
        sync.finish();
        sync.wait_all();
        expect_means(sync, step, comm.size());
      }
    });
}

TEST(Steps, AMovedSynchroniserGoesOn) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync first(comm, small_model());
    first.begin_step();
    fill(first, 7, 1, comm.rank());
    first.ready(7);
    GradientSync second(std::move(first));
    for (std::size_t p = 7; p-- > 0;) {
      fill(second, p, 1, comm.rank());
      second.ready(p);
    }
    second.finish();
    expect_means(second, 1, comm.size());
  });
}

TEST(Steps, AModelWithoutParametersIsComplete) {
  for (const bool weighted : {false, true})
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSyncOptions options;
      options.weighted = weighted;
      GradientSync sync(comm, {}, options);
      for (int step = 0; step < 4; ++step) {
        sync.begin_step();
        if (weighted) sync.set_samples(1);
        sync.finish();
        EXPECT_EQ(sync.clip_norm(1), 0);
      }
    });
}

TEST(Steps, GradientsAreAlignedAndKeepTheirPlaceUntilTheGenerationChanges) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, small_model());
    std::uint64_t generation = sync.generation();
    std::vector<void*> places;
    for (std::uint64_t step = 1; step < 6; ++step) {
      sync.begin_step();
      const bool same = sync.generation() == generation && !places.empty();
      generation = sync.generation();
      for (std::size_t p = 0; p < sync.parameters().size(); ++p) {
        void* const data = sync.gradient(p).data;
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
        if (same) { EXPECT_EQ(data, places[p]); }
      }
      places.clear();
      for (std::size_t p = 0; p < sync.parameters().size(); ++p) places.push_back(sync.gradient(p).data);
      backward(sync, step, comm.rank());
      sync.finish();
    }
  });
}

}  // namespace
}  // namespace gradsync::training
