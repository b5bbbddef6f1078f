// Groups under failure: whom they blame, and what they still answer.
#include "comm/group.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "gradsync/communicator.hpp"
#include "transport/loopback.hpp"

namespace gradsync {
namespace {

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
