// Two hosts, played by two network namespaces that are joined by a cable. They belong to child processes and end with
// them, whatever happens to the test. Needs root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "comm/dialer.hpp"
#include "comm/host_for_test.hpp"
#include "comm/interfaces.hpp"
#include "comm/rendezvous.hpp"
#include "comm/sockets.hpp"
#include "comm/store_server.hpp"

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

class TwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) FAIL() << "network namespaces need root";
    if (!a_.up() || !b_.up()) FAIL() << "no network namespaces here";
    for (const char* cable : {"eth1", "eth10"})
      ASSERT_TRUE(a_.ip(fmt::format("link add {0} type veth peer name {0} netns {1}", cable, b_.process())));
    for (const Host* host : {&a_, &b_}) {
      // Both hosts have a bridge of one and the same address, and an interface that is down.
      const int number = host == &a_ ? 1 : 2;
      for (const std::string& command :
           {std::string("link set lo up"), std::string("link add docker0 type bridge"),
            std::string("addr add 172.17.0.1/16 dev docker0"), std::string("link set docker0 up"),
            fmt::format("addr add 10.78.0.{}/24 dev eth10", number),
            fmt::format("addr add 10.77.0.{}/24 dev eth1", number),
            fmt::format("addr add fd77::{}/64 dev eth1 nodad", number), std::string("link set eth1 addrgenmode none"),
            std::string("link set eth1 up"), fmt::format("addr add fe80::{}/64 dev eth1 nodad", number)})
        ASSERT_TRUE(host->ip(command)) << command;
    }
    for (const Host* host : {&a_, &b_}) host->run([] { EXPECT_TRUE(carrier_comes("eth1")); }).join();
  }

  // The kernel tells of a cable a moment after both of its ends are up.
  static bool carrier_comes(const std::string& name) {
    for (const Deadline deadline = Deadline::after(10s); !deadline.passed(); std::this_thread::yield())
      for (const InterfaceAddress& entry : list_interfaces())
        if (entry.name == name && entry.up && entry.carrier) return true;
    return false;
  }

  std::unique_ptr<StoreServer> serve_on_a(const std::string& address) {
    std::unique_ptr<StoreServer> server;
    a_.run([&] {
        auto parsed = parse_address(address);
        ASSERT_TRUE(parsed);
        auto started = StoreServer::start(*parsed);
        ASSERT_TRUE(started) << started.status().message;
        server = std::move(*started);
      }).join();
    return server;
  }

  // Ranks 0 and 1 on host a, rank 2 on host b.
  std::vector<Result<Joined>> join_three(const std::string& url, const std::string& interface = {}) {
    std::vector<std::optional<Result<Joined>>> slots(3);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank)
      threads.push_back((rank < 2 ? a_ : b_).run([&, rank] {
        Options options;
        options.rank = rank;
        options.size = 3;
        options.rendezvous = url;
        options.interface = interface;
        options.start_timeout = 10s;
        slots[rank].emplace(join(options));
      }));
    for (auto& thread : threads) thread.join();
    std::vector<Result<Joined>> results;
    for (auto& slot : slots) results.push_back(std::move(*slot));
    return results;
  }

  // All know who shares a host, listen where the others reach them, and do reach each other.
  void expect_whole(std::vector<Result<Joined>> joined, const std::string& address_of_a,
                    const std::string& address_of_b) {
    for (const auto& one : joined) {
      ASSERT_TRUE(one) << one.status().message;
      EXPECT_EQ(one->membership.hosts, (std::vector<std::uint32_t>{0, 0, 1}));
      for (std::size_t rank = 0; rank < 3; ++rank) {
        Address address = one->membership.places[rank].tcp;
        address.scope = 0;
        EXPECT_EQ(host_text(address), rank < 2 ? address_of_a : address_of_b);
      }
    }
    auto box = joined[0]->endpoint->subscribe(1, 0, {0, 1, 2});
    b_.run([&] {
        EndpointDialer dialer(joined[2]->endpoint, std::make_shared<Membership>(joined[2]->membership), 1);
        auto line = dialer.dial({.kind = TransportKind::tcp, .to = 0});
        ASSERT_TRUE(line) << line.status().message;
        ASSERT_TRUE(poll_one(line->socket.get(), POLLOUT, Deadline::after(5s)));
        ASSERT_TRUE(send_all(line->socket.get(), line->greeting, Deadline::after(5s)));
        Arrival arrival;
        ASSERT_TRUE(poll_one(box->descriptor(), POLLIN, Deadline::after(5s)));
        ASSERT_TRUE(box->take(arrival));
        EXPECT_EQ(arrival.from, 2u);
      }).join();
  }

  Host a_, b_;
};

TEST_F(TwoHosts, TheAddressThatReachesTheRendezvousIsChosenAmongMany) {
  const auto server = serve_on_a("10.77.0.1");
  ASSERT_TRUE(server);
  expect_whole(join_three(fmt::format("tcp://{}/job", text(server->address()))), "10.77.0.1", "10.77.0.2");
}

TEST_F(TwoHosts, OverIpv6Too) {
  const auto server = serve_on_a("fd77::1");
  ASSERT_TRUE(server);
  expect_whole(join_three(fmt::format("tcp://{}/job", text(server->address()))), "fd77::1", "fd77::2");
}

TEST_F(TwoHosts, LinkLocalAddressesWorkWithTheirScope) {
  std::unique_ptr<StoreServer> server;
  a_.run([&] {
      auto started = StoreServer::start(*parse_address("fe80::1%eth1"));
      ASSERT_TRUE(started) << started.status().message;
      server = std::move(*started);
    }).join();
  ASSERT_TRUE(server);
  expect_whole(join_three(fmt::format("tcp://[fe80::1%eth1]:{}/job", server->address().port)), "fe80::1", "fe80::2");
}

TEST_F(TwoHosts, RankZeroServesUnderAnAddressOfItsHost) {
  expect_whole(join_three("host0://10.77.0.1:23456/job"), "10.77.0.1", "10.77.0.2");
}

TEST_F(TwoHosts, AFileNeedsNoRouteAndBridgesAreNotPreferred) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("gradsync-test-{:016x}", random_number());
  expect_whole(join_three("file://" + path.string()), "10.77.0.1", "10.77.0.2");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(TwoHosts, ASelectionOverridesAndNamesAreExact) {
  const auto server = serve_on_a("10.77.0.1");
  ASSERT_TRUE(server);
  const std::string url = fmt::format("tcp://{}/job", text(server->address()));
  expect_whole(join_three(url, "fd77::/64"), "fd77::1", "fd77::2");
  expect_whole(join_three(url, "eth1"), "10.77.0.1", "10.77.0.2");
  for (const auto& one : join_three(url, "eth10")) {
    ASSERT_FALSE(one);
    EXPECT_THAT(one.status().message,
                AllOf(HasSubstr("no interface for \"eth10\""), HasSubstr("(down)"), HasSubstr("eth1 10.77.0.")));
  }
}

TEST_F(TwoHosts, LoopbackAcrossHostsIsAnErrorOnAllRanks) {
  const auto server = serve_on_a("10.77.0.1");
  ASSERT_TRUE(server);
  for (const auto& one : join_three(fmt::format("tcp://{}/job", text(server->address())), "127.0.0.0/8")) {
    ASSERT_FALSE(one);
    EXPECT_THAT(one.status().message, HasSubstr("rank 0 listens on 127.0.0.1, which rank 2 on another host"));
  }
}

TEST_F(TwoHosts, WithoutARouteTheErrorListsTheInterfaces) {
  const auto joined = join_three("tcp://10.99.0.1:1234/job");
  for (const auto& one : joined) {
    ASSERT_FALSE(one);
    EXPECT_EQ(one.status().code, ErrorCode::unavailable);
    EXPECT_THAT(one.status().message,
                AllOf(HasSubstr("no address of this host reaches 10.99.0.1: network is unreachable"),
                      HasSubstr("eth1 10.77.0."), HasSubstr("docker0 172.17.0.1"), HasSubstr("(down)")));
  }
}

}  // namespace
}  // namespace gradsync
