// The norm over everything, dense and sparse, against a plain sum.
#include <cmath>

#include "model.hpp"

namespace gradsync::training {
namespace {

double norm_of(std::uint64_t step, const std::vector<Parameter>& model, int world) {
  double sum = 0;
  for (std::size_t p = 0; p < model.size(); ++p)
    for (std::size_t e = 0; e < model[p].elements(); ++e) sum += std::pow(mean_of(step, p, e, world), 2);
  return std::sqrt(sum);
}

TEST(Clip, ScalesToTheLargestNormAndReturnsTheOneBefore) {
  for (const std::uint32_t size : {1u, 2u, 3u})
    in_world({.size = size}, [&](Communicator& comm) {
      GradientSync sync(comm, small_model(), {.bucket_bytes = 5000});
      for (std::uint64_t step = 0; step < 4; ++step) {
        sync.begin_step();
        backward(sync, step, comm.rank());
        sync.finish();
        const double expected = norm_of(step, small_model(), comm.size());
        EXPECT_NEAR(sync.clip_norm(2 * expected), expected, expected * 1e-6);
        expect_means(sync, step, comm.size());  // below the limit nothing changes
        EXPECT_NEAR(sync.clip_norm(5), expected, expected * 1e-6);
        EXPECT_NEAR(sync.clip_norm(5), 5, 1e-5);
        const double first = cases::get(DType::f32, sync.gradient(4).data, 3);
        EXPECT_NEAR(first, mean_of(step, 4, 3, comm.size()) * 5 / expected, 1e-5);
      }
    });
}

TEST(Clip, CountsSparseRowsAsWell) {
  for (const bool forward : {false, true})
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSyncOptions options;
      if (forward) options.overlap = Overlap::backward_forward;
      options.overlap_only_if_worth_it = false;
      GradientSync sync(comm, {{"rows", {10, 1}, DType::f32, true}, {"w", {1}}}, options);
      sync.begin_step();
      SparseRows rows{{3}, std::vector<std::byte>(4)};
      cases::put(DType::f32, rows.values.data(), 0, 6);
      sync.ready_sparse(0, rows);
      cases::put(DType::f32, sync.gradient(1).data, 0, 8);
      sync.ready(1);
      sync.finish();
      EXPECT_DOUBLE_EQ(sync.clip_norm(5), 10);
      sync.wait_all();
      EXPECT_FLOAT_EQ(static_cast<float>(cases::get(DType::f32, sync.sparse_gradient(0).values.data(), 0)), 3.0f);
      EXPECT_FLOAT_EQ(static_cast<float>(cases::get(DType::f32, sync.gradient(1).data, 0)), 4.0f);
    });
}

TEST(Clip, LeavesGradientsAloneWhoseNormIsNotFinite) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, {{"w", {2}}});
    sync.begin_step();
    cases::put(DType::f32, sync.gradient(0).data, 0, INFINITY);
    cases::put(DType::f32, sync.gradient(0).data, 1, 3);
    sync.ready(0);
    sync.finish();
    EXPECT_EQ(sync.clip_norm(1), INFINITY);
    EXPECT_EQ(cases::get(DType::f32, sync.gradient(0).data, 1), 3);
  });
}

TEST(Clip, NeedsAFinishedStepAndAPositiveNorm) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, small_model());
    EXPECT_EQ(thrown_by([&] { sync.clip_norm(1); }).code, ErrorCode::invalid_argument);
    sync.begin_step();
    backward(sync, 0, comm.rank());
    EXPECT_EQ(thrown_by([&] { sync.clip_norm(1); }).code, ErrorCode::invalid_argument);
    sync.finish();
    EXPECT_EQ(thrown_by([&] { sync.clip_norm(0); }).code, ErrorCode::invalid_argument);
    EXPECT_EQ(thrown_by([&] { sync.clip_norm(std::nan("")); }).code, ErrorCode::invalid_argument);
    sync.clip_norm(1);
  });
}

}  // namespace
}  // namespace gradsync::training
