// M3: hosts with unequal numbers of ranks (their identity declared): start-up and all collectives work.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <numeric>
#include <thread>

#include "base/random.hpp"
#include "comm/environment.hpp"
#include "comm/store_server.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using Hosts = std::vector<std::string>;

Hosts hosts_of(std::initializer_list<int> counts) {
  Hosts hosts;
  char name = 'a';
  for (int count : counts) hosts.insert(hosts.end(), static_cast<std::size_t>(count), std::string(1, name++));
  return hosts;
}

std::int32_t value(std::size_t rank, std::size_t i) { return static_cast<std::int32_t>(rank * 1000 + i % 97); }
std::vector<std::int32_t> values(std::size_t rank, std::size_t count) {
  std::vector<std::int32_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}

void expect_every_collective(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  constexpr std::size_t n = 211;
  std::vector<std::int32_t> sums(n * ranks), all;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < n; ++i) all.push_back(value(r, i));
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += value(r, i);
  const std::vector<std::int32_t> whole = values(me, n * ranks), part = values(me, n);
  std::vector<std::int32_t> out(n * ranks), block(n);
  for (Algorithm a : algorithms_of(Collective::all_reduce)) {
    comm.all_reduce(view(whole), view(out), ReduceOp::sum, {.algorithm = a});
    EXPECT_EQ(out, sums) << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::reduce_scatter)) {
    comm.reduce_scatter(view(whole), view(block), ReduceOp::sum, {.algorithm = a});
    EXPECT_TRUE(std::equal(block.begin(), block.end(), sums.begin() + static_cast<std::ptrdiff_t>(me * n)))
        << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::all_gather)) {
    comm.all_gather(view(part), view(out), {.algorithm = a});
    EXPECT_EQ(out, all) << gradsync::name_of(a);
  }
  const int root = comm.size() - 1;
  for (Algorithm a : algorithms_of(Collective::broadcast)) {
    out = whole;
    comm.broadcast(view(out), root, {.algorithm = a});
    EXPECT_EQ(out, values(ranks - 1, n * ranks)) << gradsync::name_of(a);
    comm.reduce(view(whole), view(out), ReduceOp::sum, root, {.algorithm = a});
    if (comm.rank() == root) { EXPECT_EQ(out, sums) << gradsync::name_of(a); }
    comm.gather(view(part), view(out), root, {.algorithm = a});
    if (comm.rank() == root) { EXPECT_EQ(out, all) << gradsync::name_of(a); }
    comm.scatter(view(all), view(block), root, {.algorithm = a});
    EXPECT_EQ(block, part) << gradsync::name_of(a);
  }
  comm.all_to_all(view(whole), view(out));
  for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(out[r * n + 5], value(r, me * n + 5));
  comm.barrier();
}

void expect_works_on(const Hosts& hosts, const std::vector<std::uint32_t>& numbers) {
  in_world({.size = static_cast<std::uint32_t>(hosts.size()),
            .medium = Medium::mixed,
            .timeout = std::chrono::seconds(20),
            .hosts = hosts},
           [&](Communicator& comm) {
             EXPECT_EQ(comm.hosts(), numbers);
             expect_every_collective(comm);
             Communicator host = comm.split(static_cast<int>(comm.hosts()[static_cast<std::size_t>(comm.rank())]));
             EXPECT_EQ(host.hosts(), std::vector<std::uint32_t>(static_cast<std::size_t>(host.size()), 0));
             host.barrier();
           });
}

std::vector<std::uint32_t> numbers_of(std::initializer_list<int> counts) {
  std::vector<std::uint32_t> numbers;
  std::uint32_t number = 0;
  for (int count : counts) numbers.insert(numbers.end(), static_cast<std::size_t>(count), number++);
  return numbers;
}

TEST(CaseM3, SevenAndEightRanksOnTwoHosts) { expect_works_on(hosts_of({7, 8}), numbers_of({7, 8})); }
TEST(CaseM3, OneAndThreeRanksOnTwoHosts) { expect_works_on(hosts_of({1, 3}), numbers_of({1, 3})); }
TEST(CaseM3, OneRankAHost) { expect_works_on(hosts_of({1, 1, 1, 1, 1}), numbers_of({1, 1, 1, 1, 1})); }
TEST(CaseM3, RanksOfTwoHostsThatTakeTurns) { expect_works_on({"b", "a", "b", "a", "a"}, {0, 1, 0, 1, 1}); }

TEST(CaseM3, HostsDeclaredInTheEnvironment) {
  auto server = StoreServer::start(*parse_address("127.0.0.1"));
  ASSERT_TRUE(server);
  std::vector<Communicator> ranks(4);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      std::vector<std::string> warnings;
      const auto options =
          options_from({{"GRADSYNC_RANK", std::to_string(r)},
                        {"GRADSYNC_SIZE", "4"},
                        {"GRADSYNC_RENDEZVOUS", fmt::format("tcp://{}/job", text((*server)->address()))},
                        {"GRADSYNC_OPTIONS", fmt::format("timeout=5,start_timeout=20,host={}", r == 0 ? "x" : "y")}},
                       warnings);
      ASSERT_TRUE(options) << options.status().message;
      ranks[r] = Communicator::create(*options);
    });
  for (std::thread& thread : threads) thread.join();
  on_ranks(ranks, [](Communicator& comm) {
    EXPECT_EQ(comm.hosts(), (std::vector<std::uint32_t>{0, 1, 1, 1}));
    expect_every_collective(comm);
  });
}

}  // namespace
}  // namespace gradsync::cases
