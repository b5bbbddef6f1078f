// What goes wrong with sends and receives, over each transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "comm/point_to_point_for_test.hpp"

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

class PointToPointErrors : public PointToPoint {};
OVER_EVERY_TRANSPORT(PointToPointErrors);

Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error; }
  return Error(failure(ErrorCode::ok, "nothing was thrown"));
}

TEST_P(PointToPointErrors, RefusesWhatCannotBeAndGoesOn) {
  in_world(2, [&](Communicator& comm) {
    std::vector<std::int32_t> x(2);
    const auto refused = [&](const std::function<void()>& call, const std::string& why) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(why));
    };
    refused([&] { comm.all_reduce(view(x), ReduceOp::sum, {.tag = 1}); },
            "all_reduce: tag 1 was given, but only send and recv have tags");
    refused([&] { comm.barrier({.tag = 7}); }, "barrier: tag 7");
    refused([&] { comm.send(view(std::as_const(x)), any_rank); }, "send: the peer is rank -1");
    refused([&] { comm.recv(view(x), -2); }, "recv: the peer is rank -2");
    refused([&] { comm.broadcast(view(x), any_rank); }, "broadcast: the root is rank -1");
    Work sent = comm.send_async(view(std::as_const(x)), 1 - comm.rank(), {.tag = 0xffffffffu});
    EXPECT_EQ(comm.recv(view(x), any_rank, {.tag = 0xffffffffu}), 1 - comm.rank());
    sent.wait();
  });
  in_world(1, [&](Communicator& comm) {
    std::vector<std::int32_t> x(2);
    const Error error = error_of([&] { comm.recv(view(x), any_rank); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "recv: any rank may send, but the world has only this one");
  });
}

TEST_P(PointToPointErrors, ADeadlineOfAReceiveOfAnyRankSaysSo) {
  in_world(2, [&](Communicator& comm) {
    std::vector<std::int32_t> x(2);
    if (comm.rank() == 1) {
      EXPECT_NE(error_of([&] { comm.recv(view(x), 0); }).code(), ErrorCode::ok);  // it is told
      return;
    }
    const Error error = error_of([&] { comm.recv(view(x), any_rank, {.timeout = 100ms, .tag = 3}); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.peer(), -1);
    EXPECT_THAT(error.what(), HasSubstr("waiting for any rank (no message with tag 3 has come)"));
  });
}

TEST_P(PointToPointErrors, ADeadlineNamesTheRankThatWasWaitedFor) {
  in_world(3, [&](Communicator& comm) {
    std::vector<std::int32_t> x(2);
    if (comm.rank() != 0) {
      EXPECT_NE(error_of([&] { comm.recv(view(x), 0); }).code(), ErrorCode::ok);  // it is told
      return;
    }
    const Error error = error_of([&] { comm.recv(view(x), 2, {.timeout = 100ms}); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.peer(), 2);
    EXPECT_THAT(error.what(), HasSubstr("waiting for rank 2"));
  });
}

TEST_P(PointToPointErrors, ElementsThatDifferAreAMismatchOnBothSides) {
  in_world(2, [&](Communicator& comm) {
    const Error error = error_of([&] {
      std::vector<float> out(2);
      std::vector<std::int32_t> in(2);
      if (comm.rank() == 0) comm.recv(view(in), any_rank, {.tag = 3});
      else comm.send(view(std::as_const(out)), 0, {.tag = 3}), comm.recv(view(out), 0);
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("send of 2 f32, tag 3"), HasSubstr("recv of 2 i32, tag 3")));
  });
}

TEST_P(PointToPointErrors, AnAbortEndsReceivesThatWait) {
  in_world(3, [&](Communicator& comm) {
    std::vector<std::int32_t> x(1), y(1), other(3);
    if (comm.rank() == 0) {
      Work one = comm.recv_async(view(other), 2, {.tag = 2}), two = comm.recv_async(view(y), any_rank);
      comm.recv(view(x), 1, {.tag = 1});
      comm.abort("enough");
      for (Work* work : {&one, &two}) {
        EXPECT_EQ(error_of([&] { work->wait(); }).code(), ErrorCode::aborted);
        EXPECT_EQ(work->source(), -1);
      }
      return;
    }
    if (comm.rank() == 1) comm.send(view(std::as_const(x)), 0, {.tag = 1});
    EXPECT_EQ(error_of([&] { comm.recv(view(x), any_rank); }).code(), ErrorCode::aborted);
  });
}

TEST_P(PointToPointErrors, AReceiveOfAnyRankEndsWhenAllOthersAreGoneAndNotBefore) {
  std::atomic<bool> one_left{false};
  in_world(3, [&](Communicator& comm) {
    std::vector<std::int32_t> x(1, comm.rank());
    comm.barrier();
    if (comm.rank() == 1) {
      comm.send(view(std::as_const(x)), 0, {.tag = 1});
      comm.destroy();
      one_left = true;
      return;
    }
    if (comm.rank() == 2) {
      const auto deadline = std::chrono::steady_clock::now() + 10s;
      while (!one_left && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      comm.send(view(std::as_const(x)), 0, {.tag = 2});
      return;
    }
    EXPECT_EQ(comm.recv(view(x), any_rank, {.tag = 2}), 2);
    EXPECT_EQ(comm.recv(view(x), any_rank, {.tag = 1}), 1);
    const Error error = error_of([&] { comm.recv(view(x), any_rank); });
    EXPECT_EQ(error.code(), ErrorCode::peer_lost);
    EXPECT_THAT(error.what(), HasSubstr("all other ranks are gone"));
  });
}

}  // namespace
}  // namespace gradsync
