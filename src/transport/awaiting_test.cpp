// Sleeps that wait for many bytes of a TCP stream: what ends them and what does not.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "transport/test_site.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;

constexpr Peer kSender{1, Channel::collective};
constexpr std::size_t kLong = 100'000;

// Feeds the arrivals that a test made.
class HandInbox final : public Inbox {
 public:
  bool take(Arrival& out) override {
    if (arrivals.empty()) return drain(), false;
    out = std::move(arrivals.front());
    arrivals.pop_front();
    return true;
  }
  int descriptor() const override { return event_.get(); }
  std::list<Arrival> arrivals;

 private:
  void drain() {
    eventfd_t count;
    ::eventfd_read(event_.get(), &count);
  }
  Descriptor event_{::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable until the arrivals were taken
};

// A receiver of one TCP stream, the other end of which is a plain socket.
class Awaiting : public ::testing::Test {
 protected:
  Awaiting() {
    const TransportConfig config{.rank = 0, .size = 2, .hosts = {0, 1}};
    auto sites = std::make_shared<Sites>(2);
    transport_ = std::move(*open_transport(config, std::make_shared<TestDialer>(sites, 0), inbox_));
    Address address = tcp_address(false);
    const Descriptor listener = listen_on(address);
    peer_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    GRADSYNC_CHECK(::connect(peer_.get(), address.raw(), address.bytes) == 0);
    Arrival arrival;
    arrival.from = 1, arrival.lanes = 1;
    arrival.socket.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    GRADSYNC_CHECK(arrival.socket);
    socket_ = arrival.socket.get();
    inbox_->arrivals.push_back(std::move(arrival));
    settle();
  }
  // Takes all news, so that only what comes later ends a sleep.
  void settle() {
    while (!transport_->arm()) transport_->disarm();
    transport_->disarm();
  }
  void put(std::size_t bytes) {
    const auto more = pattern(7, bytes);
    ASSERT_EQ(::send(peer_.get(), more.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // Until so many bytes lie in the socket.
  void arrived(std::size_t bytes) const {
    const Deadline deadline = soon();
    for (std::vector<char> seen(bytes); !deadline.passed();)
      if (::recv(socket_, seen.data(), bytes, MSG_PEEK | MSG_DONTWAIT) == static_cast<ssize_t>(bytes)) return;
    FAIL() << "bytes that were sent did not arrive";
  }
  bool woken(int milliseconds) const {
    pollfd watched{transport_->descriptor(), POLLIN, 0};
    return ::poll(&watched, 1, milliseconds) == 1;
  }
  // Whether a sleep that begins now ends in time.
  bool sleep_ends() {
    const bool ends = !transport_->arm() || woken(soon().poll_milliseconds());
    transport_->disarm();
    return ends;
  }
  void take(std::size_t bytes) {
    std::vector<std::byte> got(bytes);
    const Status status = receive_all(*transport_, kSender, got);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  std::shared_ptr<HandInbox> inbox_ = std::make_shared<HandInbox>();
  Descriptor peer_;
  int socket_ = -1;
  std::unique_ptr<Transport> transport_;
};

TEST_F(Awaiting, FewerBytesDoNotEndTheSleepAndAllDo) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  put(10'000);
  arrived(10'000);
  EXPECT_FALSE(woken(0));
  put(kLong - 10'000);
  EXPECT_TRUE(woken(soon().poll_milliseconds()));
  transport_->disarm();
  take(kLong);
}

TEST_F(Awaiting, BytesThatWereReadAheadCount) {
  put(3000);
  arrived(3000);
  ASSERT_EQ(transport_->peek(kSender, 1)->size(), 3000u);
  settle();
  transport_->await(kSender, 5000);
  ASSERT_TRUE(transport_->arm());
  put(2000);
  EXPECT_TRUE(woken(soon().poll_milliseconds()));
  transport_->disarm();
  take(5000);
}

TEST_F(Awaiting, AMessageLongerThanTheSocketHoldsEndsTheSleep) {
  constexpr std::size_t kHuge = 64u << 20;
  std::jthread sending([this] {
    std::vector<char> bytes(kHuge);
    for (std::size_t sent = 0; sent < kHuge;) {
      const ssize_t step = ::send(peer_.get(), bytes.data() + sent, kHuge - sent, MSG_NOSIGNAL);
      if (step <= 0) return;
      sent += static_cast<std::size_t>(step);
    }
  });
  std::vector<std::byte> got(kHuge);
  for (std::span<std::byte> rest(got); !rest.empty();) {
    auto step = transport_->receive(kSender, rest);
    ASSERT_TRUE(step.ok());
    rest = rest.subspan(*step);
    if (*step > 0) continue;
    transport_->await(kSender, rest.size());
    ASSERT_TRUE(sleep_ends()) << rest.size() << " bytes missing";
  }
}

TEST_F(Awaiting, TheEndOfTheStreamEndsTheSleep) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  put(10);
  peer_.reset();
  EXPECT_TRUE(woken(soon().poll_milliseconds()));
  transport_->disarm();
  take(10);
  std::vector<std::byte> more(1);
  EXPECT_EQ(receive_all(*transport_, kSender, more).code, ErrorCode::peer_lost);
}

TEST_F(Awaiting, AResetEndsTheSleep) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  put(10);
  const linger at_once{1, 0};
  ASSERT_EQ(::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  peer_.reset();
  EXPECT_TRUE(woken(soon().poll_milliseconds()));
  transport_->disarm();
  std::vector<std::byte> more(kLong);
  EXPECT_EQ(receive_all(*transport_, kSender, more).code, ErrorCode::peer_lost);
}

TEST_F(Awaiting, TheNextSleepIsEndedByOneByteAgain) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  transport_->disarm();
  settle();
  ASSERT_TRUE(transport_->arm());
  put(1);
  EXPECT_TRUE(woken(soon().poll_milliseconds()));
  transport_->disarm();
}

TEST_F(Awaiting, BytesThatCameDuringALongSleepEndAShortOne) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  put(10);
  arrived(10);
  transport_->disarm();
  EXPECT_TRUE(sleep_ends());
  take(10);
}

TEST_F(Awaiting, WhoDoesNotSleepSeesEveryByteAtOnce) {
  transport_->await(kSender, kLong);
  ASSERT_TRUE(transport_->arm());
  transport_->disarm();
  for (std::size_t i = 1; i <= 3; ++i) {
    put(8);
    arrived(8);
    EXPECT_EQ(transport_->peek(kSender, 8 * i)->size(), 8 * i);
  }
}

TEST_F(Awaiting, OnlyStreamsOverANetworkAreRemote) {
  EXPECT_TRUE(transport_->remote(1));
  EXPECT_FALSE(transport_->remote(0));
}

}  // namespace
}  // namespace gradsync
