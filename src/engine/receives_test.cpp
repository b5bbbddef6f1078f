// Sends with tags and receives of any rank: what is kept, whose turn it is, and what goes wrong.
#include "engine/receives.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>

#include "engine/pairs_for_test.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

TEST(Receives, AReceiveThatWaitsForNothingBehindLeavesAMessageToItsStream) {
  World world(2, 1024);
  const Posted& sent = world.submit(0, send_to(1, 1), message(0, 0, 3000));
  world.run();
  EXPECT_FALSE(sent.completion->done());
  const Posted& wanted = world.submit(1, recv_from(0, 2), std::vector<std::int32_t>(1));
  world.run();
  EXPECT_TRUE(sent.completion->done());  // it was kept
  EXPECT_FALSE(wanted.completion->done());
  EXPECT_EQ(world.engine(1).counters().staging_bytes_peak, 12000u);
  EXPECT_EQ(world.engine(1).counters().messages_received, 0u);
}

TEST(Receives, AMessageThatIsStillArrivingIsClaimed) {
  World world(2, 1024);
  world.submit(0, send_to(1, 1), message(0, 0, 3000));
  world.submit(1, recv_from(0, 2), std::vector<std::int32_t>(1));
  world.engine(0).progress();
  world.engine(1).progress();
  world.engine(0).progress();
  const Posted& first = world.submit(1, recv_from(kAny, 1), std::vector<std::int32_t>(3000));
  EXPECT_FALSE(first.completion->done());
  world.run();
  EXPECT_EQ(got_by(first), Got(0, 0));
}

TEST(Receives, OfAnyRankTakeTurns) {
  World world(4, 4096);
  for (std::uint32_t from = 1; from < 4; ++from)
    for (int i = 0; i < 10; ++i) world.submit(from, send_to(0, 0), message(from, i, 1));
  world.run();
  std::map<int, int> by_source;
  for (int i = 0; i < 6; ++i) {
    const Posted& one = world.submit(0, recv_from(kAny, 0), std::vector<std::int32_t>(1));
    world.run();
    ++by_source[got_by(one).first];
  }
  EXPECT_EQ(by_source, (std::map<int, int>{{1, 2}, {2, 2}, {3, 2}}));
  for (int i = 0; i < 6; ++i) world.submit(0, recv_from(kAny, 0), std::vector<std::int32_t>(1));
  world.run();
  for (std::size_t i = 6; i < 12; ++i) ++by_source[got_by(*world.posted(0)[i]).first];
  EXPECT_EQ(by_source, (std::map<int, int>{{1, 4}, {2, 4}, {3, 4}}));
}

TEST(Receives, KeptMessagesOfSeveralRanksTakeTurnsToo) {
  World world(4, 4096);
  for (std::uint32_t from = 1; from < 4; ++from)
    for (int i = 0; i < 4; ++i) world.submit(from, send_to(0, 5), message(from, i, 1));
  world.submit(0, recv_from(kAny, 9), std::vector<std::int32_t>(1));
  world.run();
  std::map<int, int> by_source;
  for (int i = 0; i < 6; ++i)
    ++by_source[got_by(world.submit(0, recv_from(kAny, 5), std::vector<std::int32_t>(1))).first];
  EXPECT_EQ(by_source, (std::map<int, int>{{1, 2}, {2, 2}, {3, 2}}));
}

TEST(Receives, CountsThatDifferAreAMismatchWhetherTheMessageWasKeptOrNot) {
  for (const bool kept : {false, true}) {
    World world(2, 1024);
    world.submit(1, send_to(0, 3), message(1, 0, 5));
    if (kept) world.submit(0, recv_from(kAny, 4), std::vector<std::int32_t>(1)), world.run();
    const Posted& wrong = world.submit(0, recv_from(kAny, 3), std::vector<std::int32_t>(4));
    world.run();
    ASSERT_TRUE(wrong.completion->done());
    EXPECT_EQ(wrong.completion->status().code, ErrorCode::mismatch);
    EXPECT_EQ(wrong.completion->status().peer, 1);
    EXPECT_EQ(wrong.completion->source(), -1);
    EXPECT_EQ(wrong.completion->status().message,
              fmt::format("recv #{0}: rank 1 called send #1 (send of 5 i32, tag 3), rank 0 called recv #{0} (recv of 4 "
                          "i32, tag 3)",
                          kept ? 3 : 2));
  }
}

TEST(Receives, ADeadlineNamesTheRankOrAnyRank) {
  const auto message_of = [](int from) {
    World world(3, 1024);
    world.submit(2, send_to(0, 8), message(2, 0, 1));
    const Posted& late =
        world.submit(0, recv_from(from, 7), std::vector<std::int32_t>(2), Deadline::at(TimePoint{} + 1s));
    world.run();
    world.engine(0).attend(TimePoint{} + 2s);
    EXPECT_TRUE(late.completion->done());
    EXPECT_EQ(late.completion->status().code, ErrorCode::timeout);
    EXPECT_EQ(late.completion->status().peer, from);
    return late.completion->status().message;
  };
  EXPECT_EQ(
      message_of(kAny),
      "recv #2 (recv of 2 i32, tag 7): deadline passed, waiting for any rank (no message with tag 7 has come; 1 with "
      "other tags has)");
  EXPECT_EQ(message_of(1),
            "recv #2 (recv of 2 i32, tag 7): deadline passed, waiting for rank 1 (loopback) (no message with tag 7 has "
            "come)");
}

TEST(Receives, OfAnyRankGoOnWhileOneRankIsLeft) {
  World world(3, 1024);
  const Posted& one = world.submit(0, recv_from(kAny, 0), std::vector<std::int32_t>(1));
  world.submit(1, send_to(0, 1), message(1, 0, 3000));  // the stream ends within a message
  world.engine(1).progress();
  world.engine(0).progress();
  world.leave(1);
  world.run();
  EXPECT_TRUE(world.engine(0).suspicion().ok());
  world.submit(2, send_to(0, 0), message(2, 0, 1));
  world.run();
  EXPECT_EQ(got_by(one), Got(2, 0));
  world.submit(0, recv_from(kAny, 0), std::vector<std::int32_t>(1));
  world.submit(2, send_to(0, 0), message(2, 1, 1));
  world.engine(2).progress();
  world.leave(2);  // what it sent before is there
  world.run();
  EXPECT_EQ(got_by(*world.posted(0).back()), Got(2, 1));
  EXPECT_TRUE(world.engine(0).suspicion().ok());
  world.submit(0, recv_from(kAny, 0), std::vector<std::int32_t>(1));
  world.run();
  EXPECT_EQ(world.engine(0).suspicion().code, ErrorCode::peer_lost);
  EXPECT_EQ(
      world.engine(0).suspicion().message,
      "recv from any rank: all other ranks are gone (receive from rank 2 (loopback): its transport was destroyed)");
}

// Pages that nobody touches: the messages are large only on paper.
class Untouched {
 public:
  explicit Untouched(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Untouched() { ::munmap(data_, bytes_); }
  std::span<std::int32_t> elements() const { return {static_cast<std::int32_t*>(data_), bytes_ / 4}; }
  bool ok() const { return data_ != MAP_FAILED; }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(Receives, WhatIsKeptHasALimit) {
  const Untouched large(limits::unexpected_bytes_max);  // what there is to it besides the payload makes it too much
  ASSERT_TRUE(large.ok());
  World world(2, 1024);
  const auto completion = std::make_shared<Completion>();
  world.engine(1).submit(std::make_unique<Operation>(
      world.request(1, send_to(0, 6), large.elements(), Deadline::at(TimePoint::max())), kEpoch, completion));
  world.run();
  const Posted& waits = world.submit(0, recv_from(1, 0), std::vector<std::int32_t>(1));
  world.run();
  ASSERT_TRUE(waits.completion->done());
  EXPECT_EQ(waits.completion->status().code, ErrorCode::out_of_range);
  EXPECT_EQ(waits.completion->status().peer, 1);
  EXPECT_EQ(
      waits.completion->status().message,
      "a message of rank 1 with tag 6, 1073741824 bytes long, lies before what a recv waits for; with it and 0 others "
      "1073742080 bytes would be kept, the limit is 1073741824");
}

}  // namespace
}  // namespace gradsync
