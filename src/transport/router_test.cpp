// The transport of real processes: configurations, arrivals that do not fit, forked peers and their death, lanes.
#include "transport/router.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "transport/mapping.hpp"
#include "transport/ring.hpp"
#include "transport/test_site.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr Peer kZero{0, Channel::collective}, kOne{1, Channel::collective};

TransportConfig two(TransportKind kind, std::uint32_t rank, std::uint32_t lanes = 1) {
  return {.rank = rank, .size = 2, .hosts = {0, 0}, .kind = kind, .lanes = lanes};
}

struct Kind {
  std::string name;
  TransportKind kind;
  std::uint32_t lanes;
  bool ipv6 = false;
};

// A forked rank; it is killed and reaped at the end if it has not ended.
class Child {
 public:
  explicit Child(const std::function<bool()>& run) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(run() ? 0 : 1);
  }
  ~Child() {
    if (pid_ > 0) kill(), (void)code();
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  int code() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

class Processes : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Transport> open(std::uint32_t rank) {
    return open_on(sites_, two(GetParam().kind, rank, GetParam().lanes));
  }
  std::shared_ptr<Sites> sites_ = std::make_shared<Sites>(2, GetParam().ipv6);
};

TEST_P(Processes, MoveSixtyFourMegabytesBothWays) {
  const auto run = [&](std::uint32_t rank) {
    auto transport = open(rank);
    const Peer peer{1 - rank, Channel::collective};
    const auto source = pattern(rank, 64u << 20);
    std::vector<std::byte> got(source.size());
    std::span<const std::byte> to_send(source);
    std::span<std::byte> to_get(got);
    const Deadline deadline = soon();
    while ((!to_send.empty() || !to_get.empty()) && !deadline.passed()) {
      const std::span<const std::byte> pieces[] = {to_send};
      auto sent = transport->send(peer, pieces);
      auto received = transport->receive(peer, to_get);
      if (!sent.ok()) return false;
      if (!received.ok()) return false;
      to_send = to_send.subspan(*sent);
      to_get = to_get.subspan(*received);
      if (*sent + *received == 0) wait(*transport, Waiting::sleeps, deadline);
    }
    return got == pattern(1 - rank, source.size());
  };
  Child child([&] { return run(1); });
  EXPECT_TRUE(run(0));
  EXPECT_EQ(child.code(), 0);
}

TEST_P(Processes, PlayTenThousandRoundsWithSleepingForced) {
  const auto run = [&](std::uint32_t rank) {
    auto transport = open(rank);
    const Peer peer{1 - rank, Channel::collective};
    std::vector<std::byte> ball(8);
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      const auto expected = pattern(i, 8);
      const Status status = rank == i % 2 ? send_all(*transport, peer, expected, Waiting::sleeps)
                                          : receive_all(*transport, peer, ball, Waiting::sleeps);
      if (!status.ok() || (rank != i % 2 && ball != expected)) return false;
    }
    return true;
  };
  Child child([&] { return run(1); });
  EXPECT_TRUE(run(0));
  EXPECT_EQ(child.code(), 0);
}

TEST_P(Processes, DeliverWhatAKilledPeerSentAndThenReportItLost) {
  for (Waiting how : {Waiting::yields, Waiting::sleeps}) {
    sites_ = std::make_shared<Sites>(2, GetParam().ipv6);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const Descriptor sent(ends[0]), say_sent(ends[1]);
    Child child([&] {
      auto transport = open(1);
      if (!send_all(*transport, kZero, pattern(1, 50'000)).ok()) return false;
      if (::write(say_sent.get(), "!", 1) != 1) return false;
      ::pause();  // until it is killed
      return true;
    });
    sites_->sites[1] = Site();  // the child's alone, so that they end with it
    auto transport = open(0);
    pollfd all_sent{sent.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&all_sent, 1, soon().poll_milliseconds()), 1);
    child.kill();
    EXPECT_EQ(child.code(), 128 + SIGKILL);
    std::vector<std::byte> got(50'000), more(1);
    const Status rest = receive_all(*transport, kOne, got, how);
    ASSERT_TRUE(rest.ok()) << rest.message;
    EXPECT_EQ(got, pattern(1, got.size()));
    const Status status = receive_all(*transport, kOne, more, how);
    EXPECT_EQ(status.code, ErrorCode::peer_lost) << status.message;
    EXPECT_EQ(status.peer, 1);
    EXPECT_THAT(status.message, HasSubstr("receive from rank 1 (host test-1"));
    const Status sending = send_all(*transport, kOne, pattern(3, 64u << 20), how);
    EXPECT_EQ(sending.code, ErrorCode::peer_lost) << sending.message;
    EXPECT_THAT(sending.message, HasSubstr("rank 1 (host test-1"));
  }
}

TEST_P(Processes, ReportAKilledPeerToASenderThatWaitsForRoom) {
  for (Waiting how : {Waiting::yields, Waiting::sleeps}) {
    sites_ = std::make_shared<Sites>(2, GetParam().ipv6);
    Child child([&] {
      auto transport = open(1);
      std::vector<std::byte> word(8);
      if (!receive_all(*transport, kZero, word).ok()) return false;
      ::pause();
      return true;
    });
    sites_->sites[1] = Site();
    auto transport = open(0);
    std::jthread killing;
    const auto source = pattern(3, 64u << 20);
    std::span<const std::byte> left(source);
    Status status;
    const Deadline deadline = soon();
    while (status.ok() && !left.empty() && !deadline.passed()) {
      const std::span<const std::byte> pieces[] = {left};
      auto sent = transport->send(kOne, pieces);
      if (!sent.ok()) status = sent.status();
      else left = left.subspan(*sent);
      if (!sent.ok() || *sent > 0) continue;
      if (left.size() < source.size() && !killing.joinable()) killing = std::jthread([&] { child.kill(); });
      wait(*transport, how, deadline);
    }
    EXPECT_EQ(status.code, ErrorCode::peer_lost) << status.message;
    EXPECT_THAT(status.message, HasSubstr("send to rank 1 (host test-1"));
    // It never opened a stream to us and never will.
    std::vector<std::byte> word(8);
    const Deadline slept_through = Deadline::after(std::chrono::seconds(30));  // half of the wait's own
    EXPECT_EQ(receive_all(*transport, kOne, word, how).code, ErrorCode::peer_lost);
    EXPECT_FALSE(slept_through.passed()) << "no wake-up said that the peer is lost";
  }
}

TEST_P(Processes, DoNotNoticeThatAForkedChildDestroysItsCopy) {
  auto sender = open(0), receiver = open(1);
  std::vector<std::byte> got(100'000);
  ASSERT_TRUE(send_all(*sender, kOne, pattern(1, got.size())).ok());
  ASSERT_TRUE(receive_all(*receiver, kZero, got).ok());
  Child child([&] {
    sender.reset();
    receiver.reset();
    return true;
  });
  EXPECT_EQ(child.code(), 0);
  for (std::uint64_t round = 0; round < 30; ++round) {  // over every lane
    ASSERT_TRUE(send_all(*sender, kOne, pattern(round, got.size())).ok());
    const Status status = receive_all(*receiver, kZero, got);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_EQ(got, pattern(round, got.size()));
  }
}

// All that may still be opened is open; the sockets that exist stay usable.
void use_up_descriptors() {
  const rlimit few{64, 64};
  GRADSYNC_CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  while (::dup(0) >= 0) continue;
}

TEST_P(Processes, DoNotBlameThePeerForTheirOwnLackOfDescriptors) {
  Child child([&] {
    auto sender = open(0);
    use_up_descriptors();
    const Status status = send_all(*sender, kOne, pattern(1, 100));
    if (status.code == ErrorCode::unavailable && status.peer == -1 &&
        status.message.find("too many open files") != std::string::npos)
      return true;
    fmt::print("{} {} {}\n", name_of(status.code), status.peer, status.message);
    return false;
  });
  EXPECT_EQ(child.code(), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, Processes,
                         ::testing::Values(Kind{"shm", TransportKind::shm, 1}, Kind{"tcp", TransportKind::tcp, 1},
                                           Kind{"tcp_ipv6", TransportKind::tcp, 1, true},
                                           Kind{"tcp_four_lanes", TransportKind::tcp, 4}),
                         [](const auto& instance) { return instance.param.name; });

// Forwards one connection at a time, at most `step_bytes` every `pause`.
class Relay {
 public:
  Relay(Address to, std::size_t step_bytes, std::chrono::milliseconds pause)
      : to_(to),
        step_bytes_(step_bytes),
        pause_(pause) {
    at = tcp_address(false);
    listener_ = listen_on(at);
    thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  }
  Address at;
  std::atomic<std::uint64_t> forwarded{0};

 private:
  void run(std::stop_token stop) {
    Descriptor in, out;
    std::vector<char> buffer(step_bytes_);
    while (!stop.stop_requested()) {
      pollfd ready{in ? in.get() : listener_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 10) <= 0) continue;
      if (!in) {
        in.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        out.reset(::socket(to_.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(out.get(), to_.raw(), to_.bytes) != 0) return;
        continue;
      }
      const ssize_t got = ::recv(in.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got <= 0) return;
      for (ssize_t sent = 0; sent < got && !stop.stop_requested();) {
        const ssize_t step =
            ::send(out.get(), buffer.data() + sent, static_cast<std::size_t>(got - sent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (step > 0) sent += step;
        else ::poll(nullptr, 0, 1);
      }
      forwarded += static_cast<std::uint64_t>(got);
      ::poll(nullptr, 0, static_cast<int>(pause_.count()));  // the rate that makes it slow
    }
  }
  Address to_;
  std::size_t step_bytes_;
  std::chrono::milliseconds pause_;
  Descriptor listener_;
  std::jthread thread_;
};

TEST(Lanes, ASlowOneCarriesLittleAndStallsNothing) {
  auto sites = std::make_shared<Sites>(2);
  Relay relay(sites->sites[1].tcp_address_, 16u << 10, 2ms);
  sites->detour = [&](const Dialer::Call& call) {
    Address nowhere;
    nowhere.bytes = 0;
    return call.lane == 2 ? relay.at : nowhere;
  };
  auto sender = open_on(sites, two(TransportKind::tcp, 0, 4)), receiver = open_on(sites, two(TransportKind::tcp, 1, 4));
  const auto source = pattern(9, 256u << 20);
  std::jthread sending([&] {
    const Status status = send_all(*sender, kOne, source, Waiting::sleeps);
    EXPECT_TRUE(status.ok()) << status.message;
  });
  std::vector<std::byte> got(source.size());
  const Status status = receive_all(*receiver, kZero, got, Waiting::sleeps);
  ASSERT_TRUE(status.ok()) << status.message;
  sending.join();
  EXPECT_TRUE(got == source);
  EXPECT_LT(relay.forwarded, source.size() / 8);  // a fair share is a quarter
}

TEST(Lanes, ReportAConnectionThatIsRefused) {
  for (std::uint32_t lanes : {1u, 4u}) {
    auto sites = std::make_shared<Sites>(2);
    sites->sites[1].tcp_listener.reset();
    auto sender = open_on(sites, two(TransportKind::tcp, 0, lanes));
    const Status status = send_all(*sender, kOne, pattern(1, 100), Waiting::sleeps);
    EXPECT_EQ(status.code, ErrorCode::peer_lost) << status.message;
    EXPECT_EQ(status.peer, 1);
    EXPECT_THAT(status.message, HasSubstr("rank 1 (host test-1"));
    EXPECT_THAT(status.message, HasSubstr("onnection refused"));
    // A peer that cannot be reached will not open a stream to us either.
    std::vector<std::byte> word(8);
    EXPECT_EQ(receive_all(*sender, kOne, word).code, ErrorCode::peer_lost);
  }
}

// Feeds one hand-made arrival.
class HandInbox final : public Inbox {
 public:
  bool take(Arrival& out) override {
    if (arrivals.empty()) return false;
    out = std::move(arrivals.front());
    arrivals.pop_front();
    return true;
  }
  int descriptor() const override { return always_.get(); }
  std::list<Arrival> arrivals;

 private:
  Descriptor always_{[] {  // readable from the start
    int ends[2];
    GRADSYNC_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ::close(ends[1]);
    return ends[0];
  }()};
};

struct Receiving {
  explicit Receiving(TransportConfig config = {.rank = 0, .size = 3, .hosts = {0, 0, 1}}) {
    auto sites = std::make_shared<Sites>(config.size);
    transport = std::move(*open_transport(config, std::make_shared<TestDialer>(sites, 0), inbox));
  }
  // Hands over an arrival; what the peer's end of its socket is.
  Descriptor arrive(Arrival arrival) {
    int ends[2];
    GRADSYNC_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    arrival.socket.reset(ends[0]);
    inbox->arrivals.push_back(std::move(arrival));
    transport->arm();
    transport->disarm();
    return Descriptor(ends[1]);
  }
  bool opened(std::uint32_t rank) const {
    std::vector<std::uint32_t> senders;
    transport->append_senders(Channel::collective, senders);
    return std::find(senders.begin(), senders.end(), rank) != senders.end();
  }
  std::shared_ptr<HandInbox> inbox = std::make_shared<HandInbox>();
  std::unique_ptr<Transport> transport;
};

Arrival tcp_arrival(std::uint32_t from, std::uint32_t lane = 0, std::uint32_t lanes = 1) {
  Arrival arrival;
  arrival.from = from, arrival.lane = lane, arrival.lanes = lanes;
  return arrival;
}

bool closed(const Descriptor& socket) {
  char byte;
  return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(Arrivals, ThatDoNotFitAreDropped) {
  Receiving receiving;
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(3))));           // no such rank
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(0))));           // ourselves
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(2, 1, 1))));     // no such lane
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(2, 0, 0))));     // no lanes
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(2, 0, 1000))));  // too many
  Arrival strange = tcp_arrival(2);
  strange.channel = static_cast<Channel>(7);
  EXPECT_TRUE(closed(receiving.arrive(std::move(strange))));
  EXPECT_FALSE(receiving.opened(2));
  const Descriptor kept = receiving.arrive(tcp_arrival(2));
  EXPECT_FALSE(closed(kept));
  EXPECT_TRUE(receiving.opened(2));
  EXPECT_TRUE(closed(receiving.arrive(tcp_arrival(2))));  // a second one
  EXPECT_FALSE(closed(kept));
}

TEST(Arrivals, OfSharedMemoryAreCheckedBeforeTheyAreTouched) {
  Receiving receiving;
  const auto shm = [](std::uint32_t from, Descriptor memory) {
    Arrival arrival = tcp_arrival(from);
    arrival.kind = TransportKind::shm;
    arrival.memory = std::move(memory);
    return arrival;
  };
  const auto ring = [](std::size_t bytes) {
    Descriptor memory = std::move(*create_sealed_memory(bytes));
    const auto mapping = std::move(*Mapping::shared(memory.get(), bytes));
    const RingWriter writer(mapping.bytes());
    return memory;
  };
  EXPECT_TRUE(closed(receiving.arrive(shm(1, Descriptor()))));  // none
  Descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kRingHeaderBytes + 4096), 0);
  EXPECT_TRUE(closed(receiving.arrive(shm(1, std::move(unsealed)))));
  EXPECT_TRUE(closed(receiving.arrive(shm(1, std::move(*create_sealed_memory(100))))));  // too small
  EXPECT_TRUE(closed(receiving.arrive(shm(1, std::move(*create_sealed_memory(kRingHeaderBytes + 4096))))));  // no ring
  EXPECT_TRUE(closed(receiving.arrive(shm(2, ring(kRingHeaderBytes + 4096)))));  // from another host
  EXPECT_FALSE(receiving.opened(1) || receiving.opened(2));
  EXPECT_FALSE(closed(receiving.arrive(shm(1, ring(kRingHeaderBytes + 4096)))));
  EXPECT_TRUE(receiving.opened(1));
}

TEST(Arrivals, WithNonsenseForASegmentFailTheStream) {
  for (const auto& [offset, length, magic] : {std::tuple{0u, 10u, 1u}, {0u, 1u << 30, 0x67657367u}}) {
    Receiving receiving;
    const Descriptor lane = receiving.arrive(tcp_arrival(2, 0, 2));
    std::array<std::byte, 16> header{};
    WireWriter out(header);
    out.u64(offset), out.u32(length), out.u32(magic);
    ASSERT_EQ(::send(lane.get(), header.data(), header.size(), 0), 16);
    std::vector<std::byte> word(8);
    const Status status = receive_all(*receiving.transport, {2, Channel::collective}, word);
    EXPECT_EQ(status.code, ErrorCode::protocol) << status.message;
    EXPECT_EQ(status.peer, 2);
  }
}

TEST(Arrivals, OfSegmentsInAnyOrderAreMergedByOffset) {
  Receiving receiving;
  std::array<Descriptor, 3> lanes;
  for (std::uint32_t lane : {2u, 0u, 1u}) lanes[lane] = receiving.arrive(tcp_arrival(2, lane, 3));
  const auto source = pattern(5, 3000);
  const auto put = [&](std::uint32_t lane, std::uint64_t offset, std::uint32_t length) {
    std::vector<std::byte> bytes(16);
    WireWriter out(bytes);
    out.u64(offset), out.u32(length), out.u32(0x67657367);
    bytes.insert(bytes.end(), source.begin() + offset, source.begin() + offset + length);
    ASSERT_EQ(::send(lanes[lane].get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  };
  put(1, 2000, 1000), put(0, 500, 1500), put(2, 0, 10), put(2, 10, 490);
  std::vector<std::byte> got(3000);
  ASSERT_TRUE(receive_all(*receiving.transport, {2, Channel::collective}, got).ok());
  EXPECT_EQ(got, source);
}

TEST(Router, SendsToItself) {
  auto transport = open_on(std::make_shared<Sites>(2), two(TransportKind::automatic, 1));
  EXPECT_EQ(transport->peek(kOne, 1)->size(), 0u);
  ASSERT_TRUE(send_all(*transport, kOne, pattern(1, 1000)).ok());
  std::vector<std::byte> got(1000);
  ASSERT_TRUE(receive_all(*transport, kOne, got, Waiting::sleeps).ok());
  EXPECT_EQ(got, pattern(1, 1000));
}

TEST(Router, RefusesConfigurationsThatCannotBeRight) {
  auto sites = std::make_shared<Sites>(1);
  const auto status_of = [&](const TransportConfig& config) {
    return open_transport(config, std::make_shared<TestDialer>(sites, 0), std::make_shared<HandInbox>()).status();
  };
  EXPECT_THAT(status_of({.rank = 1, .size = 4, .hosts = {0, 0, 1, 2}, .kind = TransportKind::shm}).message,
              HasSubstr("not on the host of rank 1: ranks 2, 3"));
  EXPECT_THAT(status_of({.rank = 5, .size = 4, .hosts = {0, 0, 1, 2}}).message, HasSubstr("rank 5 of 4"));
  EXPECT_THAT(status_of({.rank = 0, .size = 4, .hosts = {0}}).message, HasSubstr("hosts of 1 ranks, expected 4"));
  EXPECT_THAT(status_of({.size = 1, .hosts = {0}, .lanes = 17}).message, HasSubstr("17 lanes, expected 1 to 16"));
  EXPECT_THAT(status_of({.size = 1, .hosts = {0}, .lanes = 0}).message, HasSubstr("0 lanes"));
  EXPECT_THAT(status_of({.size = 1, .hosts = {0}, .ring_bytes = 100}).message, HasSubstr("ring of 100 bytes"));
  EXPECT_EQ(status_of({.size = 1, .hosts = {0}, .kind = TransportKind::loopback}).code, ErrorCode::invalid_argument);
}

TEST(Router, NamesItsKindByWhatItUses) {
  const auto kind_of = [](std::vector<std::uint32_t> hosts, TransportKind kind) {
    const auto size = static_cast<std::uint32_t>(hosts.size());
    return open_on(std::make_shared<Sites>(size), {.size = size, .hosts = std::move(hosts), .kind = kind})->kind();
  };
  EXPECT_EQ(kind_of({0, 0}, TransportKind::automatic), TransportKind::shm);
  EXPECT_EQ(kind_of({0, 1}, TransportKind::automatic), TransportKind::tcp);
  EXPECT_EQ(kind_of({0, 0, 1}, TransportKind::automatic), TransportKind::automatic);
  EXPECT_EQ(kind_of({0, 0}, TransportKind::tcp), TransportKind::tcp);
}

TEST(Router, UsesTcpWhereNoMemoryCanBeReserved) {
  // A ring of 1 GiB under a file size limit stands for a memory group without room.
  auto sites = std::make_shared<Sites>(2);
  Child child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) return false;
    TransportConfig config = two(TransportKind::automatic, 1);
    config.ring_bytes = 1u << 30;
    auto transport = open_on(sites, config);
    std::vector<std::byte> word(8);
    return send_all(*transport, kZero, pattern(1, 1000)).ok() && receive_all(*transport, kZero, word).ok();
  });
  auto transport = open_on(sites, two(TransportKind::automatic, 0));
  std::vector<std::byte> got(1000);
  const Status status = receive_all(*transport, kOne, got);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(got, pattern(1, 1000));
  ASSERT_TRUE(send_all(*transport, kOne, pattern(2, 8)).ok());
  EXPECT_EQ(child.code(), 0);
}

}  // namespace
}  // namespace gradsync
