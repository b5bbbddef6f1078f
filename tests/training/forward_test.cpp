// The second half of the exchange, under the next forward pass.
#include <cmath>
#include <thread>

#include "model.hpp"

namespace gradsync::training {
namespace {

GradientSyncOptions halves() {
  GradientSyncOptions options;
  options.bucket_bytes = 4096;
  options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  return options;
}

// A training loop as it is meant to be: a parameter is waited for, used and forgotten, layer by layer, after the next step
// has begun. That the step before is on record only when its last parameter was waited for shows that nothing else waited.
TEST(Forward, ParametersAreWaitedForOneByOneUnderTheNextStep) {
  in_world({.size = 3}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), halves());
    for (std::uint64_t step = 1; step < 8; ++step) {
      sync.begin_step();
      if (step > 1) {
        EXPECT_EQ(sync.timeline().step, step == 3 ? 2 : step - 2);  // before the third step the ranks agree on a plan
        for (std::size_t p = 0; p < sync.parameters().size(); ++p) {
          sync.wait(p);
          EXPECT_TRUE(sync.complete(p));
          expect_means_of(sync, p, step - 1, comm.size());
        }
        EXPECT_EQ(sync.timeline().step, step - 1);
      }
      sync.begin_backward();
      backward(sync, step, comm.rank());
      sync.finish();
      EXPECT_TRUE(sync.overlaps_forward());
    }
    sync.wait_all();
    expect_means(sync, 7, comm.size());
  });
}

TEST(Forward, TheNextBackwardWaitsForWhatNobodyDid) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), halves());
    for (std::uint64_t step = 1; step < 8; ++step) {
      if (step % 2 == 0) sync.begin_step();
      sync.ready(7);
      if (step > 1) { EXPECT_EQ(sync.timeline().step, step - 1); }
      for (std::size_t p = 7; p-- > 0;) sync.ready(p);
      sync.finish();
    }
    sync.wait_all();
    EXPECT_EQ(sync.timeline().step, 7u);
  });
}

TEST(Forward, PollingEndsAsWaitingDoes) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSync sync(comm, small_model(), halves());
    for (std::uint64_t step = 1; step < 5; ++step) {
      sync.begin_step();
      backward(sync, step, comm.rank());
      EXPECT_FALSE(sync.complete(0));
      sync.finish();
      for (std::size_t p = 0; p < sync.parameters().size(); ++p)
        while (!sync.complete(p)) std::this_thread::yield();
      expect_means(sync, step, comm.size());
      EXPECT_EQ(sync.timeline().step, step);
    }
  });
}

// Samples of the next step are told before the last one's gradients were weighed to the end.
TEST(Forward, SamplesOfTheNextStepDoNotWeighTheLast) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options = halves();
    options.weighted = true;
    GradientSync sync(comm, small_model(), options);
    const auto samples_of = [](std::uint64_t step, int rank) {
      return 1 + (step * 7 + static_cast<std::uint64_t>(rank) * 3) % 5;
    };
    for (std::uint64_t step = 1; step < 8; ++step) {
      sync.begin_step();
      sync.set_samples(samples_of(step, comm.rank()));
      if (step > 1) {
        sync.wait_all();
        const std::vector<double> weights = {static_cast<double>(samples_of(step - 1, 0)),
                                             static_cast<double>(samples_of(step - 1, 1))};
        expect_means(sync, step - 1, 2, weights, 10);
      }
      backward(sync, step, comm.rank());
      sync.finish();
    }
    EXPECT_EQ(thrown_by([&] {
                sync.set_samples(1);
                sync.set_samples(1);
              }).code,
              ErrorCode::invalid_argument);
  });
}

// The step whose failure is found in the next call is void on every rank, and the one after it is whole.
TEST(Forward, AFailureIsToldBeforeAnyGradientOfItsStepIsUsed) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options = halves();
    options.check_finite = true;
    GradientSync sync(comm, small_model(), options);
    for (const bool polls : {false, true}) {
      sync.begin_step();
      for (std::size_t p = 8; p-- > 0;) {
        fill(sync, p, 3, comm.rank());
        if (p == 0 && comm.rank() == 1) cases::put(DType::f32, sync.gradient(0).data, 5, std::nan(""));
        sync.ready(p);
      }
      sync.finish();
      const Status status = thrown_by([&] {
        if (polls)
          while (!sync.complete(7)) std::this_thread::yield();
        else sync.begin_step();
      });
      EXPECT_EQ(status.code, ErrorCode::not_finite);
      sync.begin_step();
      backward(sync, 4, comm.rank());
      sync.finish();
      sync.wait_all();
      expect_means(sync, 4, 2);
    }
  });
}

TEST(Forward, AFailureThatNobodyAskedForIsThrownByTheNextFinish) {
  in_world({.size = 2}, [](Communicator& comm) {
    GradientSyncOptions options = halves();
    options.find_unused = false;
    GradientSync sync(comm, small_model(), options);
    for (std::size_t p = 8; p-- > 1;) sync.ready(p);
    sync.finish();
    for (std::size_t p = 8; p-- > 0;) sync.ready(p);
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_NE(status.message.find("\"first.weight\" on ranks 0 and 1"), std::string::npos) << status.message;
    backward(sync, 4, comm.rank());
    sync.finish();
    sync.wait_all();
    expect_means(sync, 4, 2);
  });
}

}  // namespace
}  // namespace gradsync::training
