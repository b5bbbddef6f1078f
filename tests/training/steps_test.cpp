// Whole steps: every rank ends with the mean, whatever the model, the world and the way.
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
