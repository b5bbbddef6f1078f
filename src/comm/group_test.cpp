// Groups under failure: whom they blame, and what they still answer.
#include "comm/group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "gradsync/communicator.hpp"
#include "transport/loopback.hpp"

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

std::vector<Communicator> three_threads() {
  Options options;
  options.timeout = 20s;
  return Communicator::threads(3, options);
}

// A rank that fails tells its peers and leaves: its ended streams must not be taken for the cause.
TEST(Group, BelievesTheVerdictOfARankThatLeftMoreThanItsEndedStream) {
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Communicator> ranks = three_threads();
    Status told;
    std::thread waiting([&] {
      std::vector<float> data(100);
      try {
        ranks[0].recv(view(data), 1);
      } catch (const Error& error) { told = error.status(); }
    });
    std::vector<float> data(100);
    Work open = ranks[1].send_async(view(std::as_const(data)), 2);  // so that rank 1 has streams to end
    ranks[1].abort("the true cause");
    ranks[1].destroy();
    waiting.join();
    ASSERT_EQ(told.code, ErrorCode::aborted) << trial << ": " << told.message;
    ASSERT_NE(told.message.find("the true cause"), std::string::npos);
  }
}

TEST(Group, NamesTheRankWhoseNeededStreamEndedWithoutAWord) {
  std::vector<Communicator> ranks = three_threads();
  std::vector<float> data(100), more(1000000);
  Work part = ranks[1].send_async(view(std::as_const(data)), 0);
  part.wait();
  ranks[0].recv(view(data), 1);
  Work begun = ranks[1].send_async(view(std::as_const(more)), 0);  // more than the stream holds
  ranks[1].destroy();
  try {
    ranks[0].recv(view(more), 1);
    FAIL() << "the other half cannot have come";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.peer(), 1);
  }
}

// What each rank is told when `body` fails on it.
std::vector<Status> told(std::vector<Communicator>& ranks, const std::function<void(Communicator&)>& body) {
  std::vector<Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(ranks[rank]);
      } catch (const Error& error) { statuses[rank] = error.status(); }
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// Rank 2 waits for rank 0, and rank 0 for rank 1, which has not called.
TEST(Group, BlamesTheRankThatNeverCameAlsoWhereItIsNotWaitedForItself) {
  Options options;
  options.timeout = 2s;
  std::vector<Communicator> ranks = Communicator::threads(4, options);
  const auto statuses = told(ranks, [](Communicator& comm) {
    std::vector<float> data(100);
    if (comm.rank() != 1) comm.all_reduce(view(data), ReduceOp::sum, {.algorithm = Algorithm::recursive_doubling});
  });
  for (const int rank : {0, 2, 3}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code, ErrorCode::timeout) << status.message;
    EXPECT_EQ(status.peer, 1) << status.message;
    EXPECT_THAT(status.message, HasSubstr("for rank 1")) << rank;
    EXPECT_THAT(status.message, HasSubstr(rank == 2 ? "waiting for rank 0" : "waiting for rank 1")) << rank;
  }
}

TEST(Group, SaysFirstWhatItWaitsForWhereAnotherRanksDeadlinePassed) {
  std::vector<Communicator> ranks = three_threads();
  const auto statuses = told(ranks, [](Communicator& comm) {
    std::vector<float> data(300);
    CallOptions options{.algorithm = Algorithm::ring};
    if (comm.rank() == 0) options.timeout = 300ms;
    if (comm.rank() != 2) comm.all_reduce(view(data), ReduceOp::sum, options);
  });
  EXPECT_EQ(statuses[1].code, ErrorCode::timeout);
  EXPECT_THAT(statuses[1].message,
              StartsWith("all_reduce #1 (all_reduce of 300 f32, sum, by ring): waiting for rank 0"));
  EXPECT_THAT(statuses[1].message, HasSubstr("; told by rank 0: all_reduce #1"));
  EXPECT_THAT(statuses[1].message, HasSubstr("waiting for rank 2"));
}

// Each is the root and has sent, so that neither call fails.
TEST(Group, KnowsAtItsEndOfACallThatWasAnotherOneOnAPeer) {
  std::vector<Communicator> ranks = three_threads();
  const auto both_roots = [](Communicator& comm) {
    std::vector<float> data(10);
    if (comm.rank() < 2) comm.broadcast(view(data), comm.rank(), {.algorithm = Algorithm::flat});
  };
  for (const Status& status : told(ranks, both_roots)) EXPECT_TRUE(status.ok()) << status.message;
  ranks[0].destroy();
  EXPECT_EQ(ranks[0].status().code, ErrorCode::mismatch);
  EXPECT_THAT(ranks[0].status().message, AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  EXPECT_EQ(ranks[2].status().code, ErrorCode::mismatch) << "it was told, or has seen both messages";
}

TEST(Group, FindsACallThatWasAnotherOneOnAPeerWhichHasLeft) {
  std::vector<Communicator> ranks = three_threads();
  std::vector<float> data(10);
  ranks[0].broadcast(view(data), 0, {.algorithm = Algorithm::flat});
  ranks[0].destroy();
  try {
    ranks[1].broadcast(view(data), 1, {.algorithm = Algorithm::flat});
    ranks[1].barrier();
    FAIL() << "rank 0 has called another broadcast";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  }
}

TEST(Group, AnswersForItsCountersWhileAnotherThreadIsInACall) {
  std::vector<Communicator> ranks = three_threads();
  std::vector<float> data(10);
  ranks[1].send_async(view(std::as_const(data)), 0);
  ranks[0].recv(view(data), 1);
  Work blocked = ranks[0].recv_async(view(data), 2);
  std::thread waiting([&] { blocked.wait_for(20s); });
  EXPECT_EQ(ranks[0].counters().messages_received, 1u);
  EXPECT_FALSE(blocked.done());  // it answered while the call was under way
  ranks[2].send(view(std::as_const(data)), 0);
  waiting.join();
  EXPECT_TRUE(blocked.done());
  EXPECT_EQ(ranks[0].counters().messages_received, 2u);
}

TEST(Group, ClosedByTwoThreadsAtOnceEndsOnce) {
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<Communicator> ranks = three_threads();
    std::vector<float> data(10);
    Work blocked = ranks[0].recv_async(view(data), 2);
    std::thread other([&] { ranks[0].destroy(); });
    ranks[0].destroy();
    other.join();
    EXPECT_TRUE(blocked.done());
    EXPECT_EQ(blocked.status().code, ErrorCode::closed);
  }
}

// A driver that the system holds up for longer than `close` waits: the peers learn of the end as soon as it comes out, though
// a Work may keep the group alive for longer.
TEST(Group, WhoeverDrivesItWhenItIsClosedEndsItsStreams) {
  const auto fabric = make_loopback_fabric(2, limits::ring_bytes_default);
  const auto peer = loopback_transport(fabric, 1);
  Group group(Group::Setup{0, 2, 1, true, loopback_transport(fabric, 0), nullptr});
  ASSERT_TRUE(group.try_take());
  group.close();
  EXPECT_TRUE(peer->peek({0, Channel::collective}, 1).ok());
  group.release();
  const auto shown = peer->peek({0, Channel::collective}, 1);
  ASSERT_FALSE(shown.ok());
  EXPECT_EQ(shown.status().code, ErrorCode::peer_lost);
  EXPECT_FALSE(group.try_take());
  EXPECT_EQ(group.status().code, ErrorCode::closed);
}

}  // namespace
}  // namespace gradsync
