// Steps leave nothing behind, and a step's own account of itself makes sense.
#include <barrier>
#include <filesystem>
#include <fstream>

#include "model.hpp"

namespace gradsync::training {
namespace {

// Sanitizers keep records of what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Held {
  std::size_t descriptors = 0, threads = 0, rss_kib = 0;
};

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

Held held_now() {
  Held held{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0};
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> held.rss_kib;
  return held;
}

void thousand_steps(const GradientSyncOptions& options) {
  Held before, after;
  std::barrier both(2);
  in_world({.size = 2}, [&](Communicator& comm) {
    // By one rank alone: looking takes a descriptor.
    const auto measure = [&](Held& into) {
      both.arrive_and_wait();
      if (comm.rank() == 0) into = held_now();
      both.arrive_and_wait();
    };
    std::vector<Parameter> model = many_parameters(60);
    model.push_back({"rows", {100, 4}, DType::f32, true});
    GradientSync sync(comm, model, options);
    constexpr std::uint64_t kWarm = 200, kSteps = 1000;
    for (std::uint64_t step = 0; step < kWarm + kSteps; ++step) {
      if (step == kWarm) measure(before);
      sync.begin_step();
      if (options.weighted) sync.set_samples(1 + (step + static_cast<std::uint64_t>(comm.rank())) % 5);
      sync.ready_sparse(60, {{comm.rank(), 7}, std::vector<std::byte>(2 * 4 * 4)});
      for (std::size_t p = 60; p-- > 0;) sync.ready(p);
      sync.finish();
      sync.wait_all();
    }
    measure(after);
  });
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // One leaked KiB a step and rank would be 2000; the allocator's own growth stays below.
  if (!kSanitized) { EXPECT_LE(after.rss_kib, before.rss_kib + 1000); }
}

TEST(Resources, AThousandStepsHoldNoMoreThanOne) {
  GradientSyncOptions options;
  options.bucket_bytes = 256;
  thousand_steps(options);
  options.weighted = true;
  thousand_steps(options);
  options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  thousand_steps(options);
}

// Gradients of 64 MiB: neither the first plan nor a new one over zeroed gradients takes as much again.
TEST(Resources, ThereIsOneCopyOfTheGradients) {
  constexpr std::size_t kMiB = 64;
  const auto shared_kib = [] {
    std::ifstream status("/proc/self/status");
    std::size_t kib = 0;
    for (std::string word; status >> word;)
      if (word == "RssShmem:") status >> kib;
    return kib;
  };
  in_world({.size = 1}, [&](Communicator& comm) {
    std::vector<Parameter> model;
    for (std::size_t p = 0; p < kMiB; ++p) model.push_back({"p" + std::to_string(p), {1 << 18}});
    const std::size_t before = shared_kib();
    GradientSync sync(comm, model);
    for (std::uint64_t step = 0; step < 3; ++step) {
      sync.begin_step();
      for (std::size_t p = kMiB; p-- > 0;) {
        fill(sync, p, step, 0);
        sync.ready(p);
      }
      sync.finish();
    }
    EXPECT_LE(shared_kib() - before, (kMiB + 2) << 10);
  });
}

TEST(Timeline, MomentsFollowOneAnother) {
  for (const bool forward : {false, true})
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSyncOptions options;
      options.bucket_bytes = 4096;
      if (forward) options.overlap = Overlap::backward_forward;
      options.overlap_only_if_worth_it = false;
      GradientSync sync(comm, small_model(), options);
      for (std::uint64_t step = 1; step < 5; ++step) {
        sync.begin_step();
        sync.begin_backward();
        backward(sync, step, comm.rank());
        sync.finish();
        sync.wait_all();
        const StepTimeline& line = sync.timeline();
        EXPECT_EQ(line.step, step);
        EXPECT_LE(0, line.backward_begin_s);
        EXPECT_LE(line.backward_begin_s, line.backward_end_s);
        EXPECT_LE(line.backward_end_s, line.finish_s);
        EXPECT_LE(0, line.waited_s);
        EXPECT_GE(line.hidden_share(), 0);
        EXPECT_LE(line.hidden_share(), 1);
        EXPECT_GT(line.communication_s(), 0);
        ASSERT_EQ(line.buckets.size(), sync.bucket_count());
        for (const StepTimeline::Bucket& bucket : line.buckets) {
          EXPECT_GT(bucket.bytes, 0u);
          EXPECT_LE(bucket.ready_s, bucket.launched_s);
          EXPECT_LE(bucket.launched_s, bucket.done_s);
          if (forward) {
            EXPECT_LE(bucket.launched_s, bucket.reduced_s);
            EXPECT_LE(bucket.reduced_s, bucket.done_s);
          } else {
            EXPECT_EQ(bucket.reduced_s, 0);
          }
        }
      }
    });
}

}  // namespace
}  // namespace gradsync::training
