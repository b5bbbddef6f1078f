// Sparse gradients: rows of all ranks merged, against a dense sum.
#include <cmath>
#include <map>

#include "model.hpp"

namespace gradsync::training {
namespace {

constexpr std::int64_t kRows = 50, kColumns = 3;

std::vector<Parameter> two_embeddings() {
  return {{"first", {kRows, kColumns}, DType::f32, true},
          {"dense", {20, 30}},
          {"second", {kRows, kColumns}, DType::f64, true},
          {"head", {9}}};
}

SparseRows rows_of(DType dtype, const std::vector<std::int64_t>& rows, double first) {
  SparseRows sparse{rows, {}};
  sparse.values.resize(rows.size() * kColumns * size_of(dtype));
  for (std::size_t i = 0; i < rows.size() * kColumns; ++i)
    cases::put(dtype, sparse.values.data(), i, first + static_cast<double>(i));
  return sparse;
}

using Dense = std::map<std::int64_t, std::vector<double>>;
void add(Dense& dense, const SparseRows& rows, DType dtype, double weight) {
  for (std::size_t k = 0; k < rows.rows.size(); ++k) {
    auto& row = dense[rows.rows[k]];
    row.resize(kColumns);
    for (std::size_t c = 0; c < kColumns; ++c)
      row[c] += weight * cases::get(dtype, rows.values.data(), k * kColumns + c);
  }
}

void expect_rows(const SparseRows& found, DType dtype, const Dense& expected) {
  ASSERT_EQ(found.rows.size(), expected.size());
  std::size_t k = 0;
  for (const auto& [row, values] : expected) {
    EXPECT_EQ(found.rows[k], row);
    for (std::size_t c = 0; c < kColumns; ++c)
      EXPECT_NEAR(cases::get(dtype, found.values.data(), k * kColumns + c), values[c], 1e-4) << "row " << row;
    ++k;
  }
}

// Rank 0 has none in odd steps; rows repeat within and between ranks.
SparseRows first_of(int rank, int step) {
  if (rank == 0 && step % 2 == 1) return {};
  return rows_of(DType::f32, {7, rank, 7, 40 - rank}, 10 * rank + step);
}

void run(const GradientSyncOptions& options, std::uint32_t size) {
  in_world({.size = size}, [&](Communicator& comm) {
    GradientSync sync(comm, two_embeddings(), options);
    for (int step = 0; step < 6; ++step) {
      sync.begin_step();
      sync.set_synchronising(true);
      for (std::size_t p : {3, 1}) {
        fill(sync, p, static_cast<std::uint64_t>(step), comm.rank());
        sync.ready(p);
      }
      sync.ready_sparse(0, first_of(comm.rank(), step));
      sync.finish();
      sync.wait_all();
      Dense expected;
      for (int r = 0; r < comm.size(); ++r) add(expected, first_of(r, step), DType::f32, 1.0 / comm.size());
      expect_rows(sync.sparse_gradient(0), DType::f32, expected);
      EXPECT_TRUE(sync.used(0));
      EXPECT_FALSE(sync.used(2));
      EXPECT_TRUE(sync.sparse_gradient(2).rows.empty());
      expect_means_of(sync, 1, static_cast<std::uint64_t>(step), comm.size());
    }
  });
}

GradientSyncOptions finding() {
  GradientSyncOptions options;
  options.find_unused = true;
  return options;
}

TEST(SparseGradients, TwoEmbeddingsOneOfThemUnused) {
  for (const std::uint32_t size : {1u, 2u, 3u}) run(finding(), size);
}

TEST(SparseGradients, TwoEmbeddingsInBothOverlapsAndManyLanes) {
  GradientSyncOptions options = finding();
  options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  options.lanes = 3;
  options.bucket_bytes = 512;
  run(options, 3);
}

TEST(SparseGradients, AreWeighed) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSyncOptions options = finding();
    options.weighted = true;
    GradientSync sync(comm, two_embeddings(), options);
    const std::vector<std::vector<double>> samples = {{8, 24}, {8, 4}, {0, 4}};
    for (std::size_t step = 0; step < samples.size(); ++step) {
      sync.begin_step();
      sync.set_samples(static_cast<std::uint64_t>(samples[step][static_cast<std::size_t>(comm.rank())]));
      sync.ready_sparse(2, rows_of(DType::f64, {3, 4 + comm.rank()}, comm.rank()));
      sync.finish();
      Dense expected;
      const double all = samples[step][0] + samples[step][1];
      for (int r = 0; r < 2; ++r)
        if (const double n = samples[step][static_cast<std::size_t>(r)]; n > 0)
          add(expected, rows_of(DType::f64, {3, 4 + r}, r), DType::f64, n / all);
      expect_rows(sync.sparse_gradient(2), DType::f64, expected);
    }
  });
}

TEST(SparseGradients, OfSeveralPassesAreAdded) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, two_embeddings(), finding());
    for (int step = 0; step < 4; ++step) {
      sync.set_synchronising(false);
      sync.ready_sparse(0, rows_of(DType::f32, {1, 2}, 1));
      sync.finish();
      sync.set_synchronising(true);
      if (comm.rank() == 0) sync.ready_sparse(0, rows_of(DType::f32, {2}, 5));
      sync.finish();
      Dense expected;
      add(expected, rows_of(DType::f32, {1, 2}, 1), DType::f32, 1);
      add(expected, rows_of(DType::f32, {2}, 5), DType::f32, 0.5);
      expect_rows(sync.sparse_gradient(0), DType::f32, expected);
    }
  });
}

TEST(SparseGradients, ARowThatDoesNotExistIsAnErrorOnEveryRank) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, two_embeddings(), finding());
    sync.begin_step();
    sync.ready_sparse(0, rows_of(DType::f32, {comm.rank() == 1 ? kRows : 0}, 1));
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.peer, 1);
    EXPECT_NE(status.message.find("row 50"), std::string::npos) << status.message;
  });
}

TEST(SparseGradients, ValuesThatDoNotFitTheirRowsAreAnErrorOnEveryRank) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, two_embeddings(), finding());
    sync.begin_step();
    SparseRows rows = rows_of(DType::f32, {4, 5}, 1);
    if (comm.rank() == 0) rows.values.resize(20);
    sync.ready_sparse(0, rows);
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.peer, 0);
    EXPECT_NE(status.message.find("20 bytes of values for 2 rows of 3 f32, expected 24"), std::string::npos)
        << status.message;
    sync.begin_step();
    sync.ready_sparse(0, rows_of(DType::f32, {4, 5}, 1));  // what was refused is not added to
    sync.finish();
    EXPECT_EQ(sync.sparse_gradient(0).rows, (std::vector<std::int64_t>{4, 5}));
  });
}

TEST(SparseGradients, NanAmongTheirValuesIsNamedWhereItIsLookedFor) {
  for (const bool forward : {false, true})
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSyncOptions options = finding();
      options.check_finite = true;
      options.overlap = forward ? Overlap::backward_forward : Overlap::backward;
      options.overlap_only_if_worth_it = false;
      GradientSync sync(comm, two_embeddings(), options);
      sync.begin_step();
      SparseRows rows = rows_of(DType::f64, {4, 5}, 1);
      if (comm.rank() == 1) cases::put(DType::f64, rows.values.data(), 4, std::nan(""));
      sync.ready_sparse(2, rows);
      const Status status = thrown_by([&] {
        sync.finish();
        sync.wait_all();
      });
      EXPECT_EQ(status.code, ErrorCode::not_finite);
      EXPECT_NE(status.message.find("\"second\" on rank 1"), std::string::npos) << status.message;
      EXPECT_NE(status.message.find("element 4"), std::string::npos) << status.message;
    });
}

TEST(SparseGradients, AModelOfNothingElseWorks) {
  in_world({.size = 3}, [&](Communicator& comm) {
    GradientSync sync(comm, {{"only", {kRows, kColumns}, DType::f32, true}});
    for (int step = 0; step < 4; ++step) {
      sync.begin_step();
      sync.ready_sparse(0, rows_of(DType::f32, {comm.rank()}, 0));
      sync.finish();
      EXPECT_EQ(sync.sparse_gradient(0).rows, (std::vector<std::int64_t>{0, 1, 2}));
    }
    sync.begin_step();
    if (comm.rank() != 1) sync.ready_sparse(0, {});
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_NE(status.message.find("\"only\" on rank 1"), std::string::npos) << status.message;
  });
}

}  // namespace
}  // namespace gradsync::training
