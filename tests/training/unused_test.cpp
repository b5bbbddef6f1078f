// Parameters without a gradient, and gradients added up over several passes.
#include "model.hpp"

namespace gradsync::training {
namespace {

constexpr std::size_t kA = 0, kB = 1, kC = 2;
std::vector<Parameter> abc() { return {{"a", {40}}, {"b", {3, 5}}, {"c", {7}}}; }

void put_all(GradientSync& sync, std::size_t parameter, double value) {
  const View view = sync.gradient(parameter);
  for (std::size_t e = 0; e < view.count; ++e) cases::put(view.dtype, view.data, e, value);
}
void expect_all(const GradientSync& sync, std::size_t parameter, double value) {
  const View view = sync.gradient(parameter);
  for (std::size_t e = 0; e < view.count; ++e)
    ASSERT_EQ(cases::get(view.dtype, view.data, e), value) << "parameter " << parameter << " element " << e;
}
void give(GradientSync& sync, std::size_t parameter, double value) {
  put_all(sync, parameter, value);
  sync.ready(parameter);
}

std::vector<GradientSyncOptions> ways(bool find_unused) {
  GradientSyncOptions backward_only, both, small;
  both.overlap = Overlap::backward_forward;
  both.overlap_only_if_worth_it = false;
  small.bucket_bytes = 64;
  for (GradientSyncOptions* options : {&backward_only, &both, &small}) options->find_unused = find_unused;
  return {backward_only, both, small};
}

TEST(Unused, CountsAsZeroWhereItIsMissingAndIsFoundWhereNobodyHasIt) {
  for (const GradientSyncOptions& options : ways(true))
    in_world({.size = 3}, [&](Communicator& comm) {
      GradientSync sync(comm, abc(), options);
      for (int step = 0; step < 5; ++step) {
        sync.begin_step();
        for (std::size_t p : {kA, kB, kC}) put_all(sync, p, 99);  // what a step before may have left
        give(sync, kA, 3 * comm.rank());
        if (comm.rank() == 1) give(sync, kB, 6);
        else if (comm.rank() == 2) sync.unused(kB);
        sync.finish();
        sync.wait_all();
        expect_all(sync, kA, 3);
        expect_all(sync, kB, 2);
        expect_all(sync, kC, 0);
        EXPECT_TRUE(sync.used(kA));
        EXPECT_TRUE(sync.used(kB));
        EXPECT_FALSE(sync.used(kC));
      }
    });
}

// Every rank throws in that very step, and names parameters and ranks; the next step works.
TEST(Unused, IsAnErrorOnEveryRankWhereItIsNotLookedFor) {
  for (const GradientSyncOptions& options : ways(false))
    in_world({.size = 3}, [&](Communicator& comm) {
      GradientSync sync(comm, abc(), options);
      for (int step = 0; step < 3; ++step) {
        sync.begin_step();
        give(sync, kC, 1);
        if (comm.rank() != 2) give(sync, kB, 1);
        if (comm.rank() == 1) give(sync, kA, 1);
        const Status status = thrown_by([&] {
          sync.finish();
          sync.wait(kC);
        });
        EXPECT_EQ(status.code, ErrorCode::invalid_argument);
        EXPECT_NE(status.message.find("\"a\" on ranks 0 and 2, \"b\" on rank 2"), std::string::npos) << status.message;

        sync.begin_step();
        for (std::size_t p : {kC, kB, kA}) give(sync, p, 4);
        sync.finish();
        sync.wait_all();
        expect_all(sync, kA, 4);
      }
    });
}

TEST(Unused, SayingSoNeedsTheOption) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, abc());
    sync.begin_step();
    if (comm.rank() == 0) sync.unused(kA);
    give(sync, kC, 1);
    give(sync, kB, 1);
    if (comm.rank() == 1) give(sync, kA, 1);
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.peer, 0);
    EXPECT_NE(status.message.find("find_unused is off"), std::string::npos) << status.message;
  });
}

// Two passes, the first of which sends nothing and uses `a` alone, the second `b` alone.
TEST(Accumulation, WhatWasUsedInAnEarlierPassIsSent) {
  for (const GradientSyncOptions& options : ways(true))
    in_world({.size = 2}, [&](Communicator& comm) {
      GradientSync sync(comm, abc(), options);
      for (int step = 0; step < 4; ++step) {
        sync.begin_step();
        for (std::size_t p : {kA, kB, kC}) put_all(sync, p, 0);
        sync.set_synchronising(false);
        give(sync, kA, 2 + 2 * comm.rank());
        sync.finish();
        expect_all(sync, kA, 2 + 2 * comm.rank());
        sync.set_synchronising(true);
        give(sync, kB, 10 * comm.rank());
        sync.finish();
        sync.wait_all();
        expect_all(sync, kA, 3);
        expect_all(sync, kB, 5);
        expect_all(sync, kC, 0);
        EXPECT_TRUE(sync.used(kA));
        EXPECT_FALSE(sync.used(kC));
      }
    });
}

TEST(Accumulation, PassesThatDoNotSendNeedNoFinishAndMayRepeat) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, abc());
    for (int step = 0; step < 4; ++step) {
      sync.set_synchronising(false);
      for (int pass = 0; pass < 3; ++pass) {
        sync.begin_step();
        for (std::size_t p : {kC, kB, kA}) sync.ready(p);
      }
      sync.set_synchronising(true);
      sync.begin_step();
      for (std::size_t p : {kC, kB, kA}) give(sync, p, comm.rank());
      sync.finish();
      expect_all(sync, kB, 0.5);
    }
    EXPECT_EQ(sync.timeline().step, 16u);
  });
}

TEST(Accumulation, CannotBeSwitchedOnInTheMiddleOfAStep) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, abc(), ways(false)[2]);
    sync.begin_step();
    give(sync, kC, 1);
    EXPECT_EQ(thrown_by([&] { sync.set_synchronising(false); }).code, ErrorCode::invalid_argument);
    EXPECT_EQ(thrown_by([&] { sync.begin_step(); }).code, ErrorCode::invalid_argument);
    give(sync, kB, 1);
    give(sync, kA, 1);
    sync.finish();
    expect_all(sync, kA, 1);
    EXPECT_EQ(comm.status().code, ErrorCode::ok);
  });
}

}  // namespace
}  // namespace gradsync::training
