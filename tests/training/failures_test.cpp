// What goes wrong reaches every rank, at finish, in that step; nobody hangs.
#include <cmath>
#include <latch>
#include <optional>

#include "model.hpp"

namespace gradsync::training {
namespace {

std::vector<Parameter> pair() { return {{"first", {40}}, {"second", {50, 3}}}; }

// A bucket each.
GradientSyncOptions small_buckets(bool forward = false) {
  GradientSyncOptions options;
  options.bucket_bytes = 64;
  if (forward) options.overlap = Overlap::backward_forward;
  options.overlap_only_if_worth_it = false;
  return options;
}

void finish_and_wait(GradientSync& sync) {
  sync.finish();
  sync.wait_all();
}

TEST(Failures, ReadyTwiceEndsTheStepOnEveryRankAndNamesTheOne) {
  for (const bool forward : {false, true})
    in_world({.size = 3}, [&](Communicator& comm) {
      GradientSync sync(comm, pair(), small_buckets(forward));
      for (std::uint64_t step = 0; step < 4; ++step) {
        sync.begin_step();
        sync.ready(1);
        if (comm.rank() == 1) sync.ready(1);
        sync.ready(0);
        const Status status = thrown_by([&] { finish_and_wait(sync); });
        EXPECT_EQ(status.code, ErrorCode::invalid_argument);
        EXPECT_EQ(status.peer, 1);
        EXPECT_NE(status.message.find("\"second\" was ready or unused before"), std::string::npos) << status.message;
        sync.begin_step();
        backward(sync, step, comm.rank());
        finish_and_wait(sync);
        expect_means(sync, step, comm.size());
      }
    });
}

// Nothing is left that could tell the others in this step: they learn of it in the next.
TEST(Failures, ReadyTwiceWhenAllHasLeftEndsTheLanes) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, pair(), small_buckets());
    sync.begin_step();
    backward(sync, 1, comm.rank());
    if (comm.rank() == 0) sync.ready(0);
    const Status own = thrown_by([&] { finish_and_wait(sync); });
    if (comm.rank() == 0) {
      EXPECT_EQ(own.code, ErrorCode::invalid_argument);
      EXPECT_EQ(thrown_by([&] { sync.begin_step(); }).message, own.message);
      EXPECT_EQ(thrown_by([&] { sync.finish(); }).message, own.message);
      return;
    }
    const Status later = thrown_by([&] {
      if (!own.ok()) throw Error(own);
      for (;;) {
        sync.begin_step();
        backward(sync, 2, comm.rank());
        finish_and_wait(sync);
      }
    });
    EXPECT_EQ(later.code, ErrorCode::aborted);
    EXPECT_NE(later.message.find("\"first\" was ready"), std::string::npos) << later.message;
  });
}

TEST(Failures, AParameterThatDoesNotExistIsNamed) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, pair(), small_buckets());
    sync.begin_step();
    if (comm.rank() == 0) sync.ready(2);
    sync.ready(1);
    sync.ready(0);
    const Status status = thrown_by([&] { sync.finish(); });
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_NE(status.message.find("parameter 2, but there are 2"), std::string::npos) << status.message;
    EXPECT_EQ(thrown_by([&] { sync.gradient(2); }).code, ErrorCode::invalid_argument);
    EXPECT_EQ(thrown_by([&] { sync.wait(2); }).code, ErrorCode::invalid_argument);
  });
}

TEST(Failures, ValuesThatAreNotFiniteAreNamedOnEveryRankWhereTheyAreLookedFor) {
  for (const bool forward : {false, true})
    in_world({.size = 3}, [&](Communicator& comm) {
      GradientSyncOptions options = small_buckets(forward);
      options.check_finite = true;
      GradientSync sync(comm, pair(), options);
      for (std::uint64_t step = 0; step < 4; ++step) {
        sync.begin_step();
        for (std::size_t p : {1, 0}) {
          fill(sync, p, step, comm.rank());
          // The last element of a parameter in several buckets: its first bucket has to say so.
          if (p == 1 && comm.rank() == 2) cases::put(DType::f32, sync.gradient(1).data, 149, step % 2 ? INFINITY : NAN);
          sync.ready(p);
        }
        const Status status = thrown_by([&] { finish_and_wait(sync); });
        EXPECT_EQ(status.code, ErrorCode::not_finite);
        EXPECT_EQ(status.peer, 2);
        EXPECT_NE(status.message.find("\"second\" on rank 2"), std::string::npos) << status.message;
        EXPECT_NE(status.message.find("element 149"), std::string::npos) << status.message;
        sync.begin_step();
        backward(sync, step, comm.rank());
        finish_and_wait(sync);
        expect_means(sync, step, comm.size());
      }
    });
}

TEST(Failures, ModelsThatDifferAreRefusedOnEveryRank) {
  in_world({.size = 2}, [&](Communicator& comm) {
    std::vector<Parameter> model = pair();
    if (comm.rank() == 1) model.push_back({"third", {5}});
    const Status status = thrown_by([&] { GradientSync(comm, model); });
    EXPECT_EQ(status.code, ErrorCode::mismatch);
    EXPECT_NE(status.message.find("third"), std::string::npos) << status.message;
    GradientSync again(comm, pair());  // and the communicator is none the worse
  });
}

TEST(Failures, OptionsThatDifferAreRefusedOnEveryRank) {
  in_world({.size = 3}, [&](Communicator& comm) {
    GradientSyncOptions options;
    if (comm.rank() == 2) options.lanes = 4;
    const Status status = thrown_by([&] { GradientSync(comm, pair(), options); });
    EXPECT_EQ(status.code, ErrorCode::mismatch);
    EXPECT_NE(status.message.find("option lanes is 2 on rank 0"), std::string::npos) << status.message;
    EXPECT_NE(status.message.find("4 on rank 2"), std::string::npos) << status.message;
  });
}

TEST(Failures, OptionsThatCannotBeRightAreRefusedOnEveryRank) {
  const auto refused = [](const std::vector<Parameter>& model, const GradientSyncOptions& options, ErrorCode code) {
    in_world({.size = 2}, [&](Communicator& comm) {
      const bool wrong = comm.rank() == 1;
      const Status status =
          thrown_by([&] { GradientSync(comm, wrong ? model : pair(), wrong ? options : GradientSyncOptions{}); });
      EXPECT_EQ(status.code, code) << status.message;
    });
  };
  refused(pair(), {.lanes = 0}, ErrorCode::invalid_argument);
  refused(pair(), {.lanes = 9}, ErrorCode::invalid_argument);
  refused({{"w", {3}, DType::i32}}, {}, ErrorCode::invalid_argument);
  refused({{"w", {3, -1}}}, {}, ErrorCode::invalid_argument);
  refused({{"w", {}, DType::f32, true}}, {}, ErrorCode::invalid_argument);
  GradientSyncOptions hooked;
  hooked.overlap = Overlap::backward_forward;
  hooked.hook = [](const GradientBucket&) { return nullptr; };
  refused(pair(), hooked, ErrorCode::unsupported);
}

TEST(Failures, CallsOfAnotherModeAreRefused) {
  in_world({.size = 2}, [&](Communicator& comm) {
    GradientSync sync(comm, pair());
    EXPECT_EQ(thrown_by([&] { sync.set_samples(3); }).code, ErrorCode::invalid_argument);
    EXPECT_EQ(thrown_by([&] { sync.accompany(); }).code, ErrorCode::invalid_argument);
    EXPECT_EQ(thrown_by([&] { sync.sparse_gradient(0); }).code, ErrorCode::invalid_argument);
    GradientSyncOptions options;
    options.weighted = true;
    GradientSync weighed(comm, pair(), options);
    EXPECT_EQ(thrown_by([&] { weighed.set_samples(std::uint64_t{1} << 40); }).code, ErrorCode::invalid_argument);
    weighed.set_samples(3);
    EXPECT_EQ(thrown_by([&] { weighed.set_samples(3); }).code, ErrorCode::invalid_argument);
  });
}

// One rank goes in the middle of a step; the others are told, and nothing touches memory that is gone.
TEST(Failures, DestructionInTheMiddleOfAStepEndsItForAll) {
  for (const Medium medium : cases::kMedia)
    for (const bool forward : {false, true})
      in_world({.size = 3, .medium = medium}, [&](Communicator& comm) {
        GradientSyncOptions options = small_buckets(forward);
        options.bucket_bytes = 64u << 10;
        const std::vector<Parameter> model = {{"a", {1 << 20}}, {"b", {1 << 18}}};
        std::optional<GradientSync> sync(std::in_place, comm, model, options);
        sync->begin_step();
        sync->ready(1);
        if (comm.rank() == 2) return sync.reset();
        sync->ready(0);
        const Status status = thrown_by([&] { finish_and_wait(*sync); });
        EXPECT_FALSE(status.ok());
        EXPECT_NE(status.code, ErrorCode::timeout) << status.message;
        EXPECT_EQ(thrown_by([&] { sync->begin_step(); }).message, status.message);
      });
}

TEST(Failures, ATimeoutIsTheCommunicators) {
  std::latch over(2);  // rank 1 stays, and does nothing
  in_world({.size = 2, .timeout = std::chrono::milliseconds(500)}, [&](Communicator& comm) {
    GradientSync sync(comm, pair(), small_buckets());
    sync.begin_step();
    if (comm.rank() == 0) {
      backward(sync, 1, comm.rank());
      const Status status = thrown_by([&] { sync.finish(); });
      EXPECT_EQ(status.code, ErrorCode::timeout) << status.message;
      EXPECT_EQ(status.peer, 1);
    }
    over.arrive_and_wait();
  });
}

}  // namespace
}  // namespace gradsync::training
