// One suite for every transport, between threads.
#include "transport/transport.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "base/limits.hpp"
#include "transport/fault.hpp"
#include "transport/loopback.hpp"
#include "transport/test_site.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;

constexpr Channel kCollective = Channel::collective, kPointToPoint = Channel::point_to_point;

class EveryTransport : public ::testing::TestWithParam<Maker> {
 protected:
  World make(std::uint32_t size) { return GetParam().make(size); }
};

World loopback_world(std::uint32_t size, std::size_t ring_bytes) {
  auto fabric = make_loopback_fabric(size, ring_bytes);
  World world;
  for (std::uint32_t rank = 0; rank < size; ++rank) world.push_back(loopback_transport(fabric, rank));
  return world;
}

World wire_world(TransportConfig config, bool ipv6 = false) {
  auto sites = std::make_shared<Sites>(config.size, ipv6);
  World world;
  for (config.rank = 0; config.rank < config.size; ++config.rank) world.push_back(open_on(sites, config));
  return world;
}

TransportConfig one_host(std::uint32_t size, TransportKind kind, std::uint32_t lanes = 1) {
  return {.size = size, .hosts = std::vector<std::uint32_t>(size, 0), .kind = kind, .lanes = lanes};
}

// Every second rank on the other host, so that neighbours use tcp and the others shm.
World mixed_world(std::uint32_t size) {
  TransportConfig config = one_host(size, TransportKind::automatic, 2);
  for (std::uint32_t rank = 1; rank < size; rank += 2) config.hosts[rank] = 1;
  return wire_world(config);
}

World small_rings(std::uint32_t size) {
  TransportConfig config = one_host(size, TransportKind::shm);
  config.ring_bytes = 4096;
  return wire_world(config);
}

World with_faults(World world) {
  const auto clock = std::make_shared<SteadyClock>();
  for (std::size_t rank = 0; rank < world.size(); ++rank)
    world[rank] =
        fault_transport(std::move(world[rank]),
                        {.seed = 100 + rank, .delay_probability = 0.01, .delay_max = 50us, .max_piece = 30'000}, clock);
  return world;
}

TEST_P(EveryTransport, DeliversInOrderWhateverTheSizesOfSendsAndReads) {
  World world = make(2);
  const auto source = pattern(1, 3'000'000);
  std::jthread sending([&] {
    Random random(2);
    for (std::size_t done = 0; done < source.size();) {
      const std::size_t most = random.below(10) == 0 ? 300'000 : 300;
      const std::size_t count = std::min<std::size_t>(source.size() - done, 1 + random.below(most));
      const Status status = send_all(*world[0], {1, kCollective}, std::span(source).subspan(done, count));
      ASSERT_TRUE(status.ok()) << status.message;
      done += count;
    }
  });
  Random random(3);
  std::vector<std::byte> got;
  std::vector<std::byte> buffer(300'000);
  const Deadline deadline = soon();
  while (got.size() < source.size() && !deadline.passed()) {
    const std::size_t most = std::min(source.size() - got.size(), buffer.size());
    std::size_t count = 0;
    if (random.below(2) == 0) {
      auto moved = world[1]->receive({0, kCollective}, std::span(buffer).first(1 + random.below(most)));
      ASSERT_TRUE(moved.ok()) << moved.status().message;
      count = *moved;
      got.insert(got.end(), buffer.begin(), buffer.begin() + count);
    } else {
      auto shown = world[1]->peek({0, kCollective}, random.below(65));
      ASSERT_TRUE(shown.ok()) << shown.status().message;
      count = shown->empty() ? 0 : 1 + random.below(shown->size());
      got.insert(got.end(), shown->begin(), shown->begin() + count);
      world[1]->consume({0, kCollective}, count);
    }
    if (count == 0) std::this_thread::yield();
  }
  sending.join();
  EXPECT_TRUE(got == source);
}

TEST_P(EveryTransport, TakesOnlyWhatFitsAndGoesOnLater) {
  World world = make(2);
  const auto source = pattern(4, 64u << 20);
  const Deadline deadline = soon();
  std::size_t sent = 0, idle = 0;
  // Nobody reads: a bounded amount is taken.
  while (idle < 1000 && !deadline.passed()) {
    const std::span<const std::byte> pieces[] = {std::span(source).subspan(sent)};
    auto count = world[0]->send({1, kCollective}, pieces);
    ASSERT_TRUE(count.ok()) << count.status().message;
    sent += *count;
    ASSERT_LT(sent, source.size());
    idle = *count == 0 ? idle + 1 : 0;
    ASSERT_TRUE(world[1]->peek({0, kCollective}, 1).ok());  // lets it accept the stream
  }
  EXPECT_GT(sent, 0u);
  std::jthread sending([&] {
    EXPECT_TRUE(send_all(*world[0], {1, kCollective}, std::span(source).subspan(sent)).ok());
  });
  std::vector<std::byte> got(source.size());
  const Status status = receive_all(*world[1], {0, kCollective}, got);
  sending.join();
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_TRUE(got == source);
}

TEST_P(EveryTransport, MovesSixtyFourMegabytesBothWaysAtOnce) {
  World world = make(2);
  const auto run = [&](std::uint32_t rank) {
    const Peer peer{1 - rank, kCollective};
    const auto source = pattern(10 + rank, 64u << 20);
    std::vector<std::byte> got(source.size());
    std::span<const std::byte> to_send(source);
    std::span<std::byte> to_get(got);
    const Deadline deadline = soon();
    while ((!to_send.empty() || !to_get.empty()) && !deadline.passed()) {
      const std::span<const std::byte> pieces[] = {to_send};
      auto sent = world[rank]->send(peer, pieces);
      ASSERT_TRUE(sent.ok()) << sent.status().message;
      to_send = to_send.subspan(*sent);
      auto received = world[rank]->receive(peer, to_get);
      ASSERT_TRUE(received.ok()) << received.status().message;
      to_get = to_get.subspan(*received);
      if (*sent + *received == 0) wait(*world[rank], Waiting::sleeps, deadline);
    }
    EXPECT_TRUE(got == pattern(10 + 1 - rank, 64u << 20));
  };
  std::jthread other(run, 1);
  run(0);
  other.join();
}

TEST_P(EveryTransport, ShowsSixtyFourBytesContiguouslyWhereverTheyLie) {
  World world = make(2);
  std::jthread sending([&] {
    for (std::uint64_t i = 0; i < 20'000; ++i)
      ASSERT_TRUE(send_all(*world[0], {1, kCollective}, pattern(i, 64 + i % 97)).ok());
  });
  const Deadline deadline = soon();
  std::vector<std::byte> rest(100);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const auto expected = pattern(i, 64 + i % 97);
    auto shown = world[1]->peek({0, kCollective}, 64);
    while (shown.ok() && shown->size() < 64 && !deadline.passed()) {
      std::this_thread::yield();
      shown = world[1]->peek({0, kCollective}, 64);
    }
    ASSERT_TRUE(shown.ok()) << shown.status().message;
    ASSERT_GE(shown->size(), 64u);
    ASSERT_TRUE(std::equal(expected.begin(), expected.begin() + 64, shown->begin())) << i;
    world[1]->consume({0, kCollective}, 64);
    ASSERT_TRUE(receive_all(*world[1], {0, kCollective}, std::span(rest).first(i % 97)).ok());
    ASSERT_TRUE(std::equal(expected.begin() + 64, expected.end(), rest.begin())) << i;
  }
  sending.join();
}

TEST_P(EveryTransport, NeverLosesAWakeUp) {
  World world = make(2);
  const auto play = [&](std::uint32_t rank) {
    const Peer peer{1 - rank, kCollective};
    std::vector<std::byte> ball(8);
    for (std::uint64_t i = 0; i < 10'000; ++i) {
      if (rank == i % 2) {
        ASSERT_TRUE(send_all(*world[rank], peer, pattern(i, 8), Waiting::sleeps).ok()) << i;
      } else {
        const Status status = receive_all(*world[rank], peer, ball, Waiting::sleeps);
        ASSERT_TRUE(status.ok()) << status.message;
        ASSERT_EQ(ball, pattern(i, 8));
      }
    }
  };
  std::jthread other(play, 1);
  play(0);
  other.join();
}

TEST_P(EveryTransport, WakesASenderThatSleepsForRoom) {
  World world = make(2);
  const auto source = pattern(5, 20u << 20);
  std::jthread sending([&] { EXPECT_TRUE(send_all(*world[0], {1, kCollective}, source, Waiting::sleeps).ok()); });
  std::vector<std::byte> got(source.size());
  const Status status = receive_all(*world[1], {0, kCollective}, got, Waiting::sleeps);
  sending.join();
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_TRUE(got == source);
}

TEST_P(EveryTransport, SleepsThoughBytesThatNobodyWantsLieThere) {
  World world = make(3);
  ASSERT_TRUE(send_all(*world[0], {2, kCollective}, pattern(1, 1000)).ok());
  const Deadline deadline = soon();
  while (world[2]->peek({0, kCollective}, 64)->size() < 64) ASSERT_FALSE(deadline.passed());
  std::atomic<bool> got{false};
  std::jthread waiting([&] {
    std::vector<std::byte> word(8);
    EXPECT_TRUE(receive_all(*world[2], {1, kCollective}, word, Waiting::sleeps).ok());
    got = true;
  });
  EXPECT_FALSE(got);
  ASSERT_TRUE(send_all(*world[1], {2, kCollective}, pattern(1, 8)).ok());
  waiting.join();
  // With nothing new, it comes to rest though 1000 bytes lie unread.
  int armed = 0;
  for (int i = 0; i < 100 && armed < 3; ++i) {
    if (world[2]->arm()) {
      pollfd poll_for{world[2]->descriptor(), POLLIN, 0};
      armed = ::poll(&poll_for, 1, 0) == 0 ? armed + 1 : 0;
    }
    world[2]->disarm();
  }
  EXPECT_EQ(armed, 3);
}

TEST_P(EveryTransport, KeepsChannelsAndPeersApart) {
  constexpr std::uint32_t size = 4;
  World world = make(size);
  const auto seed = [](std::uint32_t from, std::uint32_t to, Channel channel) {
    return std::uint64_t{1000} * from + 10 * to + static_cast<std::uint64_t>(channel);
  };
  const auto run = [&](std::uint32_t rank) {
    for (Channel channel : {kCollective, kPointToPoint})
      for (std::uint32_t step = 1; step < size; ++step) {
        const std::uint32_t to = (rank + step) % size;
        ASSERT_TRUE(send_all(*world[rank], {to, channel}, pattern(seed(rank, to, channel), 1000)).ok());
      }
    std::vector<std::byte> got(1000);
    for (Channel channel : {kPointToPoint, kCollective})
      for (std::uint32_t from = 0; from < size; ++from) {
        if (from == rank) continue;
        const Status status = receive_all(*world[rank], {from, channel}, got, Waiting::sleeps);
        ASSERT_TRUE(status.ok()) << status.message;
        ASSERT_EQ(got, pattern(seed(from, rank, channel), 1000));
      }
    std::vector<std::uint32_t> senders;
    world[rank]->append_senders(kCollective, senders);
    EXPECT_EQ(senders.size(), size - 1);
  };
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 1; rank < size; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (auto& thread : threads) thread.join();
}

TEST_P(EveryTransport, ReportsALostPeerAfterItsLastBytes) {
  for (Waiting how : {Waiting::yields, Waiting::sleeps}) {
    World world = make(2);
    ASSERT_TRUE(send_all(*world[1], {0, kCollective}, pattern(6, 8)).ok());
    std::vector<std::byte> first(8);
    ASSERT_TRUE(receive_all(*world[0], {1, kCollective}, first).ok());
    ASSERT_TRUE(send_all(*world[1], {0, kCollective}, pattern(7, 1000)).ok());
    std::jthread leaving([&] { world[1].reset(); });
    std::vector<std::byte> got(1000), more(1);
    ASSERT_TRUE(receive_all(*world[0], {1, kCollective}, got, how).ok());
    EXPECT_EQ(got, pattern(7, 1000));
    const Status status = receive_all(*world[0], {1, kCollective}, more, how);
    EXPECT_EQ(status.code, ErrorCode::peer_lost) << status.message;
    EXPECT_EQ(status.peer, 1);
    EXPECT_THAT(status.message, ::testing::HasSubstr("rank 1"));
    EXPECT_EQ(world[0]->peek({1, kCollective}, 64).status().code, ErrorCode::peer_lost);
    leaving.join();
  }
}

TEST_P(EveryTransport, ReportsALostPeerToASenderThatSleepsForRoom) {
  World world = make(2);
  ASSERT_TRUE(send_all(*world[0], {1, kCollective}, pattern(1, 8)).ok());
  std::vector<std::byte> word(8);
  ASSERT_TRUE(receive_all(*world[1], {0, kCollective}, word).ok());
  std::jthread leaving([&] { world[1].reset(); });
  const auto source = pattern(8, 64u << 20);
  const Status status = send_all(*world[0], {1, kCollective}, source, Waiting::sleeps);
  leaving.join();
  EXPECT_EQ(status.code, ErrorCode::peer_lost) << status.message;
  EXPECT_EQ(status.peer, 1);
}

INSTANTIATE_TEST_SUITE_P(Loopback, EveryTransport,
                         ::testing::Values(Maker{"small", [](auto n) { return loopback_world(n, 4096); }},
                                           Maker{"usual",
                                                 [](auto n) { return loopback_world(n, limits::ring_bytes_default); }}),
                         [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Faulty, EveryTransport,
    ::testing::Values(
        Maker{"loopback", [](auto n) { return with_faults(loopback_world(n, limits::ring_bytes_default)); }},
        Maker{"shm", [](auto n) { return with_faults(small_rings(n)); }},
        Maker{"tcp_three_lanes", [](auto n) { return with_faults(wire_world(one_host(n, TransportKind::tcp, 3))); }}),
    [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Wire, EveryTransport,
    ::testing::Values(Maker{"shm", [](auto n) { return wire_world(one_host(n, TransportKind::automatic)); }},
                      Maker{"shm_small", small_rings},
                      Maker{"tcp", [](auto n) { return wire_world(one_host(n, TransportKind::tcp)); }},
                      Maker{"tcp_ipv6", [](auto n) { return wire_world(one_host(n, TransportKind::tcp), true); }},
                      Maker{"tcp_three_lanes", [](auto n) { return wire_world(one_host(n, TransportKind::tcp, 3)); }},
                      Maker{"mixed", mixed_world}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace gradsync
