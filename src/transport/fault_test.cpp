#include "transport/fault.hpp"

#include <gmock/gmock.h>

#include "transport/loopback.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;

constexpr Peer kZero{0, Channel::collective}, kOne{1, Channel::collective};

class TestClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  TimePoint now_;
};

struct Faulty {
  explicit Faulty(const FaultPlan& plan) {
    auto fabric = make_loopback_fabric(2, 1 << 20);
    sender = fault_transport(loopback_transport(fabric, 0), plan, clock);
    receiver = fault_transport(loopback_transport(fabric, 1), plan, clock);
  }
  Result<std::size_t> send(std::span<const std::byte> bytes) {
    const std::span<const std::byte> pieces[] = {bytes};
    return sender->send(kOne, pieces);
  }
  std::shared_ptr<TestClock> clock = std::make_shared<TestClock>();
  std::unique_ptr<Transport> sender, receiver;
};

// What happens to 10,000 bytes, one entry a call: bytes sent, then bytes shown; the clock moves 1 us a round.
std::vector<std::size_t> history(const FaultPlan& plan, std::size_t offered = 10'000) {
  Faulty faulty(plan);
  const auto source = pattern(1, 10'000);
  std::vector<std::size_t> calls;
  std::vector<std::byte> got;
  std::size_t sent = 0;
  for (int round = 0; round < 1'000'000 && got.size() < source.size(); ++round) {
    const auto taken = faulty.send(std::span(source).subspan(sent, std::min(offered, source.size() - sent)));
    EXPECT_TRUE(taken.ok());
    sent += *taken;
    const auto shown = faulty.receiver->peek(kZero, 1);
    EXPECT_TRUE(shown.ok());
    got.insert(got.end(), shown->begin(), shown->end());
    calls.push_back(*taken);
    calls.push_back(shown->size());
    faulty.receiver->consume(kZero, shown->size());
    faulty.clock->advance(1us);
  }
  EXPECT_TRUE(got == source);
  return calls;
}

TEST(Fault, ReplaysExactlyFromItsSeed) {
  FaultPlan plan{.seed = 42, .delay_probability = 0.3, .delay_max = 20us, .max_piece = 100};
  const auto first = history(plan);
  EXPECT_EQ(history(plan), first);
  EXPECT_GT(std::count(first.begin(), first.end(), 0u), 50);  // delays happened
  EXPECT_LE(*std::max_element(first.begin(), first.end()), 100u);
  plan.seed = 43;
  EXPECT_NE(history(plan), first);
}

TEST(Fault, DecidesByBytesAndNotByCalls) {
  const FaultPlan plan{.seed = 7, .delay_probability = 0, .max_piece = 100};
  // The boundaries of the pieces are the same however few bytes a call offers.
  const auto boundaries = [](const std::vector<std::size_t>& calls) {
    std::vector<std::size_t> sums;
    std::size_t sum = 0;
    for (std::size_t i = 0; i < calls.size(); i += 2)
      if (calls[i] > 0) sums.push_back(sum += calls[i]);
    return sums;
  };
  const auto whole = boundaries(history(plan)), little = boundaries(history(plan, 13));
  EXPECT_GT(whole.size(), 50u);
  EXPECT_TRUE(std::includes(little.begin(), little.end(), whole.begin(), whole.end()));
}

TEST(Fault, HoldsBytesBackUntilTheirTime) {
  Faulty faulty({.seed = 1, .delay_probability = 1, .delay_max = 1s});
  const auto source = pattern(1, 8);
  EXPECT_EQ(*faulty.send(source), 0u);
  EXPECT_FALSE(faulty.sender->arm());  // its time comes without an event
  faulty.sender->disarm();
  faulty.clock->advance(1s);
  EXPECT_EQ(*faulty.send(source), 8u);
  EXPECT_EQ(faulty.receiver->peek(kZero, 8)->size(), 0u);
  EXPECT_FALSE(faulty.receiver->arm());
  faulty.receiver->disarm();
  faulty.clock->advance(1s);
  EXPECT_EQ(faulty.receiver->peek(kZero, 8)->size(), 8u);
}

TEST(Fault, ShowsWhatIsAskedForThoughPiecesAreSmaller) {
  Faulty faulty({.seed = 3, .max_piece = 3});
  const auto source = pattern(1, 6400);
  for (std::size_t sent = 0; sent < source.size();) sent += *faulty.send(std::span(source).subspan(sent));
  for (std::size_t at = 0; at < source.size(); at += 64) {
    const auto shown = faulty.receiver->peek(kZero, 64);
    ASSERT_EQ(shown->size(), 64u);
    ASSERT_TRUE(std::equal(shown->begin(), shown->end(), source.begin() + at));
    faulty.receiver->consume(kZero, 64);
  }
}

TEST(Fault, LosesThePeerAtTheByte) {
  Faulty faulty({.lost = FaultPlan::Loss{.peer = 1, .after_bytes = 100}});
  EXPECT_EQ(*faulty.send(pattern(1, 200)), 100u);
  const auto status = faulty.send(pattern(1, 200)).status();
  EXPECT_EQ(status.code, ErrorCode::peer_lost);
  EXPECT_EQ(status.peer, 1);
  EXPECT_EQ(faulty.sender->peek(kOne, 1).status().code, ErrorCode::peer_lost);
  EXPECT_EQ(faulty.receiver->peek(kZero, 1)->size(), 100u);  // the plan names rank 1 only
}

TEST(Fault, FallsSilentInAPartition) {
  Faulty faulty({.partition = FaultPlan::Partition{.peers = {1}, .after_bytes = 100}});
  EXPECT_EQ(*faulty.send(pattern(1, 200)), 100u);
  EXPECT_EQ(*faulty.send(pattern(1, 200)), 0u);
  EXPECT_TRUE(faulty.sender->arm());
  faulty.sender->disarm();
}

}  // namespace
}  // namespace gradsync
