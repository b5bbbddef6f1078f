// The mean over samples: uneven batches, uneven numbers of batches, and ranks with nothing.
#include <cmath>
#include <limits>

#include "model.hpp"

namespace gradsync::training {
namespace {

GradientSyncOptions weighted() {
  GradientSyncOptions options;
  options.weighted = true;
  return options;
}

void step_of(GradientSync& sync, std::uint64_t step, int rank, std::uint64_t samples) {
  sync.begin_step();
  sync.set_samples(samples);
  backward(sync, step, rank);
  sync.finish();
  sync.wait_all();
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

// Each row: the samples of every rank in one step.
void run_weights(const std::vector<std::vector<double>>& steps, const std::vector<Parameter>& model,
                 const GradientSyncOptions& options = weighted()) {
  in_world({.size = static_cast<std::uint32_t>(steps[0].size())}, [&](Communicator& comm) {
    GradientSync sync(comm, model, options);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const auto samples = static_cast<std::uint64_t>(steps[step][static_cast<std::size_t>(comm.rank())]);
      step_of(sync, step, comm.rank(), samples);
      // Scaled, added up to `size` times, averaged and corrected: a rounding each, of values up to the largest factor.
      expect_means(sync, step, comm.size(), steps[step], 3.0 * comm.size() + 4);
      EXPECT_EQ(sync.total_samples(), static_cast<std::uint64_t>(sum_of(steps[step])));
    }
  });
}

TEST(Weights, BatchesOf8And24GiveTheMeanOver32Samples) { run_weights({{8, 24}, {8, 24}, {8, 24}}, small_model()); }

TEST(Weights, TheLastBatchMayBeSmaller) { run_weights({{8, 8, 8}, {8, 8, 8}, {8, 8, 3}, {8, 8, 8}}, small_model()); }

TEST(Weights, CountsMayChangeByAMillion) {
  run_weights({{1, 1}, {1, 1000000}, {1000000, 1}, {1, 1}, {1000000, 1000000}, {1, 2}}, small_model());
}

TEST(Weights, AllTypesAreWeighed) { run_weights({{8, 24}, {8, 8}, {1, 100000}, {5, 0}}, mixed_model()); }

TEST(Weights, ARankWithoutSamplesCountsAsNothing) {
  run_weights({{0, 24}, {8, 0}, {0, 1}, {7, 7}}, small_model());
  run_weights({{0, 2, 5}, {3, 0, 0}}, small_model());
}

TEST(Weights, BothOverlapsWeighAlike) {
  GradientSyncOptions options = weighted();
  options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  run_weights({{8, 24}, {8, 8}, {1, 100000}, {5, 0}}, mixed_model(), options);
}

TEST(Weights, EqualBatchesHaveTheBitsOfThePlainMean) {
  in_world({.size = 3}, [](Communicator& comm) {
    GradientSync plain(comm, small_model()), weighed(comm, small_model(), weighted());
    for (std::uint64_t step = 0; step < 4; ++step) {
      plain.begin_step();
      backward(plain, step, comm.rank());
      plain.finish();
      step_of(weighed, step, comm.rank(), 20);
      ASSERT_EQ(bytes_of(plain), bytes_of(weighed));
    }
  });
}

// Weight 0 times NaN would be NaN.
TEST(Weights, NanOnARankWithoutSamplesIsNotSeen) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, {{"w", {100}}}, weighted());
    for (int step = 0; step < 3; ++step) {
      sync.begin_step();
      sync.set_samples(comm.rank() == 0 ? 4 : 0);
      const double value = comm.rank() == 0 ? 2.5 : std::numeric_limits<double>::quiet_NaN();
      for (std::size_t e = 0; e < 100; ++e) cases::put(DType::f32, sync.gradient(0).data, e, value);
      sync.ready(0);
      sync.finish();
      for (std::size_t e = 0; e < 100; ++e) ASSERT_EQ(cases::get(DType::f32, sync.gradient(0).data, e), 2.5);
    }
  });
}

// Range of f16: 65504. Eight ranks, one of which has all samples: eight times its gradient would be infinite.
TEST(Weights, SixteenBitGradientsNearTheEndOfTheirRangeStayFinite) {
  for (const std::uint64_t few : {std::uint64_t{0}, std::uint64_t{1}})
    in_world({.size = 8}, [&](Communicator& comm) {
      GradientSync sync(comm, {{"w", {50}, DType::f16}}, weighted());
      const std::uint64_t samples = comm.rank() == 3 ? 1000000 : few;
      for (int step = 0; step < 3; ++step) {
        sync.begin_step();
        sync.set_samples(samples);
        for (std::size_t e = 0; e < 50; ++e) cases::put(DType::f16, sync.gradient(0).data, e, 30000);
        sync.ready(0);
        sync.finish();
        // 2^-11 relative for each of scaling, averaging and scaling back.
        for (std::size_t e = 0; e < 50; ++e)
          ASSERT_NEAR(cases::get(DType::f16, sync.gradient(0).data, e), 30000, 30000 * 3 * std::ldexp(1, -11));
      }
    });
}

TEST(Weights, NoSamplesOnAnyRankIsAnErrorOnEvery) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), weighted());
    for (const std::uint64_t before : {0, 5}) {
      if (before > 0) step_of(sync, 1, comm.rank(), before);
      const Status status = thrown_by([&] { step_of(sync, 2, comm.rank(), 0); });
      EXPECT_EQ(status.code, ErrorCode::invalid_argument);
      EXPECT_NE(status.message.find("0 samples"), std::string::npos) << status.message;
    }
    step_of(sync, 3, comm.rank(), 6);  // and the next step is none the worse
    expect_means(sync, 3, 2);
  });
}

TEST(Weights, SamplesThatNobodySetAreAnErrorOnEveryRank) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), weighted());
    for (std::uint64_t step = 0; step < 2; ++step) {
      const Status status = thrown_by([&] {
        sync.begin_step();
        if (comm.rank() == 0) sync.set_samples(3);
        backward(sync, step, comm.rank());
        sync.finish();
      });
      EXPECT_EQ(status.code, ErrorCode::invalid_argument);
      EXPECT_EQ(status.peer, 1);
      EXPECT_NE(status.message.find("set_samples()"), std::string::npos) << status.message;
    }
  });
}

// 5, 7 and 6 batches of unequal size: every rank applies the same gradients in all seven steps.
void run_out(const GradientSyncOptions& options) {
  in_world({.size = 3}, [&](Communicator& comm) {
    GradientSync sync(comm, small_model(), options);
    const std::uint64_t batches[] = {5, 7, 6};
    const auto samples_of = [&](std::uint64_t step, int rank) {
      return step < batches[rank] ? 3 + 2 * static_cast<std::uint64_t>(rank) : 0;
    };
    std::uint64_t applied = 0;
    for (std::uint64_t step = 0;; ++step) {
      if (step < batches[comm.rank()]) step_of(sync, step, comm.rank(), samples_of(step, comm.rank()));
      else if (!sync.accompany()) break;
      ++applied;
      std::vector<double> weights;
      for (int r = 0; r < 3; ++r) weights.push_back(static_cast<double>(samples_of(step, r)));
      expect_means(sync, step, 3, weights, 13);
      ASSERT_EQ(sync.total_samples(), static_cast<std::uint64_t>(sum_of(weights)));
    }
    EXPECT_EQ(applied, 7u);
  });
}

TEST(Weights, RanksThatRunOutKeepTheOthersCompany) {
  run_out(weighted());
  GradientSyncOptions options = weighted();
  options.find_unused = true;
  run_out(options);
  options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  run_out(options);
}

TEST(Weights, SamplesOfAccumulatedPassesAddUp) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, {{"w", {10}}}, weighted());
    sync.begin_step();
    sync.set_synchronising(false);
    sync.set_samples(comm.rank() == 0 ? 1 : 10);
    sync.ready(0);
    sync.finish();
    sync.set_synchronising(true);
    sync.set_samples(comm.rank() == 0 ? 2 : 20);
    for (std::size_t e = 0; e < 10; ++e) cases::put(DType::f32, sync.gradient(0).data, e, comm.rank());
    sync.ready(0);
    sync.finish();
    EXPECT_EQ(sync.total_samples(), 33u);
    EXPECT_NEAR(cases::get(DType::f32, sync.gradient(0).data, 0), 30.0 / 33, 1e-6);
  });
}

}  // namespace
}  // namespace gradsync::training
