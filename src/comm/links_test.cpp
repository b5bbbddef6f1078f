// Links of unequal bandwidth: what is planned for them, and four hosts, played by network namespaces, of which one is slow.
// Needs root and tc.
#include "comm/links.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "comm/host_for_test.hpp"
#include "comm/inspect.hpp"
#include "schedule/layouts.hpp"
#include "simulate/shards.hpp"
#include "simulate/traffic.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

std::vector<HostPort> ports(std::initializer_list<double> times) {
  std::vector<HostPort> all;
  for (double time : times) all.push_back({time, time});
  return all;
}

TEST(PortsToPlanFor, AreThoseOfHostsThatDiffer) {
  const std::vector<HostPort> slow = ports({1, 1, 4, 1});
  EXPECT_EQ(ports_to_plan_for(slow), slow);
}

TEST(PortsToPlanFor, AreNoneWhereUnevenPartsWouldGainLittle) {
  EXPECT_TRUE(ports_to_plan_for(ports({1, 1, 1, 1})).empty());
  EXPECT_TRUE(ports_to_plan_for(ports({1, 1.1, 0.9, 1})).empty());
  // One host at 1/1.2 of the others: T = 6 / (3 + 1/1.2) = 1.565 S against 1.5 * 1.2 = 1.8 S, 13 % less.
  EXPECT_TRUE(ports_to_plan_for(ports({1, 1.2, 1, 1})).empty());
  // At 1/1.25: 6 / 3.8 = 1.579 against 1.875, 15.8 % less.
  EXPECT_FALSE(ports_to_plan_for(ports({1, 1.25, 1, 1})).empty());
  EXPECT_TRUE(ports_to_plan_for(ports({1, 4})).empty());
  EXPECT_TRUE(ports_to_plan_for({}).empty());
}

TEST(PortsToPlanFor, AreTheMedianWhereTheyAreCloseToIt) {
  EXPECT_EQ(ports_to_plan_for(ports({1.05, 1, 4, 0.95, 1})), ports({1, 1, 4, 1, 1}));
  std::vector<HostPort> in_only = ports({1, 1, 1, 1});
  in_only[3].in_s_per_byte = 4;
  EXPECT_EQ(ports_to_plan_for(in_only), in_only);
}

TEST(Ports, DifferByMoreThanAFifth) {
  const std::vector<HostPort> one = ports({1, 1, 1});
  EXPECT_FALSE(differ(one, one));
  EXPECT_FALSE(differ(one, ports({1, 1.19, 0.85})));
  EXPECT_TRUE(differ(one, ports({1, 1.21, 1})));
  EXPECT_TRUE(differ(one, ports({1, 1, 0.8})));
  EXPECT_TRUE(differ(one, ports({1, 1})));
}

// Hosts 0 to 3 at 10.79.0.1 and up, on a bridge; their links are shaped both ways.
class FourHosts : public testing::Test {
 protected:
  static constexpr std::uint32_t kHosts = 4, kSlow = 2;

  void SetUp() override {
    if (::geteuid() != 0) FAIL() << "network namespaces need root";
    ASSERT_TRUE(bridge_.up() && bridge_.ip("link add br0 type bridge") && bridge_.ip("link set br0 up"));
    for (std::uint32_t h = 0; h < kHosts; ++h) {
      ASSERT_TRUE(hosts_[h].up());
      ASSERT_TRUE(bridge_.ip(fmt::format("link add port{} type veth peer name wire netns {}", h, hosts_[h].process())));
      ASSERT_TRUE(bridge_.ip(fmt::format("link set port{} master br0 up", h)));
      ASSERT_TRUE(hosts_[h].ip("link set lo up"));
      ASSERT_TRUE(hosts_[h].ip(fmt::format("addr add 10.79.0.{}/24 dev wire", h + 1)));
      ASSERT_TRUE(hosts_[h].ip("link set wire up"));
      shape(h, 200);
    }
  }

  void shape(std::uint32_t host, std::uint32_t mbit) {
    const auto command = [&](const std::string& device) {
      return fmt::format("tc qdisc replace dev {} root tbf rate {}mbit burst 64kb limit 1mb", device, mbit);
    };
    ASSERT_TRUE(hosts_[host].sh(command("wire")));
    ASSERT_TRUE(bridge_.sh(command(fmt::format("port{}", host))));
  }

  // What a rank saw.
  struct Seen {
    std::vector<HostPort> ports;
    Recipe chosen;
    bool right = true, counted = true;
    std::uint64_t calls = 0;
    std::string problem;
  };

  // A rank on each host; `body` runs on all of them.
  std::vector<Seen> on_all(const std::function<void(Communicator&, Seen&)>& body) {
    std::vector<Seen> seen(kHosts);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kHosts; ++rank)
      threads.push_back(hosts_[rank].run([&, rank] {
        Options options;
        options.rank = rank;
        options.size = kHosts;
        options.rendezvous = "host0://10.79.0.1:29400/links";
        options.start_timeout = 20s;
        options.timeout = 60s;
        try {
          Communicator comm = Communicator::create(options);
          body(comm, seen[rank]);
          comm.barrier();
        } catch (const std::exception& error) { seen[rank].problem = error.what(); }
      }));
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t rank = 0; rank < kHosts; ++rank) EXPECT_EQ(seen[rank].problem, "") << "rank " << rank;
    return seen;
  }

  // Sums of whole numbers, exact in f32.
  static bool sums_up(Communicator& comm, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((static_cast<std::size_t>(comm.rank()) + 1) * (i % 1021));
    comm.all_reduce(view(values), ReduceOp::sum);
    for (std::size_t i = 0; i < count; ++i)
      if (values[i] != static_cast<float>(10 * (i % 1021))) return false;
    return true;
  }

  static Traffic counted(const Communicator& comm) {
    const Counters c = comm.counters();
    return {c.messages_sent, c.bytes_sent, c.messages_received, c.bytes_received, c.elements_reduced};
  }

  Host bridge_;
  Host hosts_[kHosts];
};

constexpr std::size_t kCount = 300'007;  // f32: above the size that has links measured

TEST_F(FourHosts, OfWhichOneIsSlowGiveItLessAndAreRight) {
  shape(kSlow, 50);
  const auto seen = on_all([](Communicator& comm, Seen& mine) {
    mine.right = sums_up(comm, kCount);
    mine.ports = Inspector::ports(comm);
    mine.chosen = Inspector::chosen(comm, Collective::all_reduce, 4 * kCount);
    const Traffic before = counted(comm);
    mine.right = sums_up(comm, kCount) && mine.right;
    const Traffic after = counted(comm);
    const auto rank = static_cast<std::uint32_t>(comm.rank());
    Traffic expected = before;
    expected += traffic_of(mine.chosen, rank, Layouts(layout_for(mine.chosen, shape_of(mine.chosen, rank), kCount)), 4);
    mine.counted = after == expected;
  });
  for (const Seen& one : seen) {
    EXPECT_TRUE(one.right);
    EXPECT_TRUE(one.counted);
    EXPECT_EQ(one.ports, seen[0].ports);
    EXPECT_EQ(one.chosen, seen[0].chosen);
  }
  ASSERT_EQ(seen[0].ports.size(), kHosts);
  const std::vector<std::uint32_t>& shards = seen[0].chosen.shards;
  ASSERT_EQ(shards.size(), kHosts) << "chosen: " << name_of(seen[0].chosen.algorithm);
  EXPECT_EQ(seen[0].chosen.algorithm, Algorithm::two_shot);
  for (std::uint32_t h = 0; h < kHosts; ++h) {
    if (h == kSlow) continue;
    EXPECT_GT(seen[0].ports[kSlow].out_s_per_byte, 2 * seen[0].ports[h].out_s_per_byte);
    EXPECT_GT(seen[0].ports[kSlow].in_s_per_byte, 2 * seen[0].ports[h].in_s_per_byte);
    EXPECT_LT(4 * shards[kSlow], shards[h]);
  }
}

TEST_F(FourHosts, FindOutTogetherThatALinkIsNoLongerSlow) {
  shape(kSlow, 20);
  constexpr std::uint64_t calls_most = 400;
  const auto seen = on_all([&](Communicator& comm, Seen& mine) {
    const auto chosen = [&] { return Inspector::chosen(comm, Collective::all_reduce, 4 * kCount); };
    for (; mine.calls < limits::links_window_calls + limits::links_trial_calls + 2; ++mine.calls)
      mine.right = sums_up(comm, kCount) && mine.right;
    mine.chosen = chosen();  // after the trial of equal parts
    comm.barrier();
    if (comm.rank() == 0) shape(kSlow, 200);
    comm.barrier();
    for (; mine.calls < calls_most && !chosen().shards.empty(); ++mine.calls)
      mine.right = sums_up(comm, kCount) && mine.right;
  });
  for (const Seen& one : seen) {
    EXPECT_TRUE(one.right);
    EXPECT_EQ(one.chosen.shards.size(), kHosts);
    EXPECT_EQ(one.calls, seen[0].calls);  // all at the same call
    EXPECT_LT(one.calls, calls_most);
  }
}

TEST_F(FourHosts, OfEqualLinksHaveEqualParts) {
  const auto seen = on_all([](Communicator& comm, Seen& mine) {
    mine.right = sums_up(comm, kCount);
    mine.ports = Inspector::ports(comm);
    mine.chosen = Inspector::chosen(comm, Collective::all_reduce, 4 * kCount);
  });
  for (const Seen& one : seen) {
    EXPECT_TRUE(one.right);
    EXPECT_EQ(one.ports.size(), kHosts);
    EXPECT_TRUE(one.chosen.shards.empty());
    EXPECT_EQ(one.chosen, seen[0].chosen);
  }
}

}  // namespace
}  // namespace gradsync
