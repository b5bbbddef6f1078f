// Payloads that their sender writes where the receiver wants them: between threads, and between processes as far as one process can
// show it.
#include "transport/landing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "transport/loopback.hpp"
#include "transport/pages_for_test.hpp"
#include "transport/test_site.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;

constexpr Peer kZero{0, Channel::collective}, kOne{1, Channel::collective};
constexpr std::size_t kBytes = 1u << 20;
constexpr std::uint64_t kFingerprint = 0x1234;

// Rank 0 sends to rank 1; streams are open both ways, and eight bytes have passed on each.
struct Two {
  std::shared_ptr<Book> book = std::make_shared<Book>();
  std::unique_ptr<Transport> sender, receiver;

  void open() {
    pass(*sender, kOne, *receiver, kZero, 8);
    pass(*receiver, kZero, *sender, kOne, 8);
  }
  static void pass(Transport& from, Peer to, Transport& at, Peer origin, std::size_t bytes) {
    const std::vector<std::byte> data(bytes, std::byte{7});
    std::vector<std::byte> got(bytes);
    const std::span<const std::byte> piece(data);
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    std::size_t sent = 0, received = 0;
    while (received < bytes && !deadline.passed()) {
      const std::span<const std::byte> rest = piece.subspan(sent);
      if (!rest.empty()) {
        auto taken = from.send(to, {&rest, 1});
        ASSERT_TRUE(taken.ok()) << taken.status().message;
        sent += *taken;
      }
      auto more = at.receive(origin, std::span(got).subspan(received));
      ASSERT_TRUE(more.ok()) << more.status().message;
      received += *more;
    }
    ASSERT_EQ(received, bytes);
  }
};

Two over_shm() {
  Two two;
  auto sites = std::make_shared<Sites>(2);
  const auto config = [&](std::uint32_t rank) {
    TransportConfig made;
    made.rank = rank, made.size = 2, made.hosts = {0, 0}, made.pages = two.book;
    return made;
  };
  two.sender = open_on(sites, config(0));
  two.receiver = open_on(sites, config(1));
  return two;
}

Two over_loopback() {
  Two two;
  auto fabric = make_loopback_fabric(2, 4096);
  two.sender = loopback_transport(fabric, 0, two.book);
  two.receiver = loopback_transport(fabric, 1, two.book);
  return two;
}

class Landing : public ::testing::TestWithParam<Two (*)()> {
 protected:
  void SetUp() override {
    two_ = GetParam()();
    two_.open();
    place_ = two_.book->allocate(kBytes);
  }
  Transport& sender() { return *two_.sender; }
  Transport& receiver() { return *two_.receiver; }
  std::optional<Transport::Landing> offer(std::uint64_t ahead, std::span<std::byte> payload) {
    return receiver().offer_landing(kZero, {ahead, kFingerprint, payload});
  }
  Two two_;
  std::span<std::byte> place_;
  const std::vector<std::byte> data_ = std::vector<std::byte>(kBytes, std::byte{42});
};
INSTANTIATE_TEST_SUITE_P(Between, Landing, ::testing::Values(&over_shm, &over_loopback),
                         [](const auto& which) { return which.index == 0 ? "Processes" : "Threads"; });

TEST_P(Landing, BytesComeAsFarAsTheyAreAllowed) {
  const auto offered = offer(100, place_);
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->skip, 0u);
  EXPECT_EQ(offered->bytes, kBytes);
  ASSERT_TRUE(sender().take_landing(kOne, 8 + 100, kFingerprint));
  auto written = sender().land(kOne, data_);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(*written, 0u);
  receiver().allow_landing(kZero, 70000);
  std::size_t done = 0;
  for (int piece = 0; piece < 4; ++piece) done += *sender().land(kOne, std::span(data_).subspan(done));
  EXPECT_EQ(done, 70000u);
  EXPECT_EQ(place_[69999], std::byte{42});
  EXPECT_EQ(place_[70000], std::byte{0});
  auto landed = receiver().landed(kZero);
  ASSERT_TRUE(landed.ok() && *landed);
  EXPECT_EQ(**landed, 70000u);
  receiver().allow_landing(kZero, kBytes);
  while (done < kBytes) done += *sender().land(kOne, std::span(data_).subspan(done));
  EXPECT_EQ(**receiver().landed(kZero), kBytes);
  EXPECT_EQ(std::memcmp(place_.data(), data_.data(), kBytes), 0);
  receiver().end_landing(kZero);
  EXPECT_TRUE(offer(0, place_)) << "the next offer";
}

TEST_P(Landing, OnlyWholePagesLand) {
  const auto offered = offer(0, place_.subspan(100, 500000));
  ASSERT_TRUE(offered);
  EXPECT_EQ(offered->skip, 4096u - 100);
  EXPECT_EQ(offered->skip + offered->bytes, 500100 / 4096 * 4096 - 100u);
}

TEST_P(Landing, AnotherMessageIsNotForThePlace) {
  ASSERT_TRUE(offer(64, place_));
  EXPECT_FALSE(sender().take_landing(kOne, 8, kFingerprint)) << "an earlier message";
  EXPECT_FALSE(sender().take_landing(kOne, 8 + 64, kFingerprint + 1)) << "a call that differs";
  auto landed = receiver().landed(kZero);
  ASSERT_TRUE(landed.ok());
  EXPECT_FALSE(*landed) << "its header came without the offer being taken";
  EXPECT_FALSE(sender().take_landing(kOne, 8 + 64, kFingerprint + 1));
  EXPECT_TRUE(offer(64, place_)) << "the next offer";
}

TEST_P(Landing, MemoryThatIsNotRegisteredOrTooLittleIsNotOffered) {
  std::vector<std::byte> own(kBytes);
  EXPECT_FALSE(offer(0, own));
  EXPECT_FALSE(offer(0, place_.first(limits::landing_bytes_min - 1)));
  ASSERT_TRUE(offer(0, place_));
  EXPECT_FALSE(offer(0, two_.book->allocate(kBytes))) << "one at a time";
}

// The place is what the receiver sends at the same time: each byte may be overwritten as soon as the sender has read it.
TEST_P(Landing, WhatWasReadMayBeOverwritten) {
  ASSERT_TRUE(receiver().offer_landing(kZero, {0, kFingerprint, place_, 0}));
  ASSERT_TRUE(sender().take_landing(kOne, 8, kFingerprint));
  EXPECT_EQ(*sender().land(kOne, data_), 0u);
  ASSERT_EQ(**receiver().lend(kZero, place_, kBytes), 0u);
  auto shown = sender().peek(kOne, 1);
  ASSERT_TRUE(shown.ok() && shown->size() == kBytes);
  ASSERT_TRUE(sender().consume(kOne, 5000));
  EXPECT_EQ(*sender().land(kOne, data_), 5000u);
  EXPECT_EQ(place_[4999], std::byte{42});
  EXPECT_EQ(place_[5000], std::byte{0});
}

// What is read in step with the write may be overwritten, but only where both are at the same byte.
TEST_P(Landing, WhatIsBeingReadMayBeOverwritten) {
  ASSERT_TRUE(receiver().offer_landing(kZero, {0, kFingerprint, place_, 0}));
  ASSERT_TRUE(sender().take_landing(kOne, 8, kFingerprint));
  ASSERT_EQ(**receiver().lend(kZero, place_, kBytes), 0u);
  ASSERT_EQ(sender().peek(kOne, 1)->size(), kBytes);
  auto into = sender().begin_land(kOne, 9000, 6000);
  ASSERT_TRUE(into.ok());
  EXPECT_EQ(into->size(), 6000u);
  std::ranges::fill(*into, std::byte{7});
  sender().end_land(kOne, 6000);
  EXPECT_EQ(place_[5999], std::byte{7});
  ASSERT_TRUE(sender().consume(kOne, 6000));
  ASSERT_TRUE(sender().consume(kOne, 1000));
  into = sender().begin_land(kOne, 9000, 6000);
  EXPECT_EQ(into->size(), 1000u) << "1000 bytes behind: their likes were not read in step with it";
  sender().end_land(kOne, 0);
  EXPECT_EQ(**receiver().landed(kZero), 6000u);
}

TEST_P(Landing, NothingIsWrittenOnceThePlaceIsTakenBack) {
  ASSERT_TRUE(offer(0, place_));
  ASSERT_TRUE(sender().take_landing(kOne, 8, kFingerprint));
  receiver().allow_landing(kZero, kBytes);
  ASSERT_EQ(*sender().land(kOne, std::span(data_).first(1000)), 1000u);
  receiver().withdraw();
  EXPECT_TRUE(two_.book->first().whole());
  auto written = sender().land(kOne, std::span(data_).subspan(1000));
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.status().code, ErrorCode::peer_lost);
  EXPECT_EQ(place_[1000], std::byte{0});
}

TEST_P(Landing, ASenderThatLeavesIsFoundOut) {
  ASSERT_TRUE(offer(0, place_));
  ASSERT_TRUE(sender().take_landing(kOne, 8, kFingerprint));
  receiver().allow_landing(kZero, kBytes);
  ASSERT_EQ(*sender().land(kOne, std::span(data_).first(1000)), 1000u);
  two_.sender.reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  Result<std::optional<std::uint64_t>> landed = receiver().landed(kZero);
  while (landed.ok() && !deadline.passed()) landed = receiver().landed(kZero);
  ASSERT_FALSE(landed.ok());
  EXPECT_EQ(landed.status().code, ErrorCode::peer_lost);
}

// A sender that was stopped in the middle of a write, and goes on long after: it writes into memory that is nobody's.
TEST(Pages, PutsOtherPagesUnderThePlaceOfASenderThatDoesNotAnswer) {
  Book book;
  const std::span<std::byte> place = book.allocate(kBytes);
  auto theirs = Mapping::shared(book.first().memory(), kBytes);  // as the sender has it
  ASSERT_TRUE(theirs.ok());
  std::memset(place.data(), 1, place.size());
  book.first().replace(place.subspan(4096, 8192));
  EXPECT_FALSE(book.first().whole());
  EXPECT_EQ(book.find(place), nullptr) << "not to be shown any more";
  std::memset(theirs->bytes().data(), 9, kBytes);
  EXPECT_EQ(place[4095], std::byte{9});
  EXPECT_EQ(place[4096], std::byte{1}) << "kept its content, out of the sender's reach";
  EXPECT_EQ(place[4096 + 8191], std::byte{1});
  EXPECT_EQ(place[4096 + 8192], std::byte{9});
  std::memset(place.data(), 2, place.size());
}

TEST(LandingReceiver, GivesUpWaitingForAWriteAtItsDeadline) {
  auto memory = Mapping::anonymous(kRingHeaderBytes + 64);
  ASSERT_TRUE(memory.ok());
  LandingSender sender(memory->bytes());
  LandingReceiver receiver(memory->bytes());
  receiver.offer({.position = 5, .fingerprint = 6, .bytes = 100});
  const auto place = sender.offered(5, 6);
  ASSERT_TRUE(place);
  std::array<std::byte, 100> there{};
  sender.accept(*place, there.data());
  auto* const header = std::launder(reinterpret_cast<LandingHeader*>(memory->bytes().data() + kLandingHeaderOffset));
  header->writing.store(1);  // as if stopped inside a write
  const Deadline now = Deadline::after(Nanoseconds{0});
  EXPECT_FALSE(receiver.withdraw(now, [] { return false; }));
  EXPECT_FALSE(receiver.open());
}

TEST(LandingReceiver, NeedNotWaitForAProcessThatIsGone) {
  auto memory = Mapping::anonymous(kRingHeaderBytes + 64);
  ASSERT_TRUE(memory.ok());
  LandingSender sender(memory->bytes());
  LandingReceiver receiver(memory->bytes());
  receiver.offer({.position = 5, .fingerprint = 6, .bytes = 100});
  std::array<std::byte, 100> there{};
  sender.accept(*sender.offered(5, 6), there.data());
  std::launder(reinterpret_cast<LandingHeader*>(memory->bytes().data() + kLandingHeaderOffset))->writing.store(1);
  EXPECT_TRUE(receiver.withdraw(Deadline::after(std::chrono::seconds(60)), [] { return true; }));
}

}  // namespace
}  // namespace gradsync
