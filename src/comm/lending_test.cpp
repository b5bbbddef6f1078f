// Registered memory through the public face, by threads: the same results, and what callers may rely on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

void in_threads(std::vector<Communicator>& ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::string> problems(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(ranks[r]);
      } catch (const std::exception& error) { problems[r] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(problems[r], "") << "rank " << r;
}

std::vector<Communicator> world(std::uint32_t size) {
  Options options;
  options.timeout = 20s;
  return Communicator::threads(size, options);
}

void fill(std::span<float> into, int rank) {
  for (std::size_t i = 0; i < into.size(); ++i)
    into[i] = static_cast<float>(rank + 1) / 3.0f + static_cast<float>(i % 1013);
}

TEST(RegisteredMemory, GivesTheBitsOfOrdinaryMemoryByEveryAlgorithm) {
  for (std::uint32_t size : {2u, 3u, 5u}) {
    std::vector<Communicator> ranks = world(size);
    const std::size_t count = size * limits::loan_bytes_min / sizeof(float) + 5;
    in_threads(ranks, [&](Communicator& comm) {
      const Memory memory = comm.allocate((count + 1) * sizeof(float));
      const std::span<float> lent = memory.as<float>().subspan(1);
      std::vector<float> ordinary(count);
      for (const CatalogueEntry& entry : catalogue()) {
        if (entry.collective != Collective::all_reduce) continue;
        fill(lent, comm.rank());
        fill(ordinary, comm.rank());
        comm.all_reduce(view(lent), ReduceOp::avg, {.algorithm = entry.algorithm});
        comm.all_reduce(view(ordinary), ReduceOp::avg, {.algorithm = entry.algorithm});
        EXPECT_EQ(0, std::memcmp(lent.data(), ordinary.data(), count * sizeof(float))) << name_of(entry.algorithm);
      }
    });
  }
}

TEST(RegisteredMemory, IsLentByCommunicatorsThatDescendFromTheOneThatAllocatedIt) {
  std::vector<Communicator> ranks = world(4);
  in_threads(ranks, [](Communicator& comm) {
    const Memory memory = comm.allocate(1u << 20);
    const std::span<float> data = memory.as<float>();
    Communicator half = comm.split(comm.rank() % 2);
    fill(data, comm.rank() / 2);
    half.all_reduce(view(data), ReduceOp::sum);
    EXPECT_EQ(data[0], 1.0f / 3.0f + 2.0f / 3.0f);
  });
}

TEST(RegisteredMemory, MayBeFreedWhileTheCommunicatorLives) {
  std::vector<Communicator> ranks = world(2);
  in_threads(ranks, [](Communicator& comm) {
    for (int i = 0; i < 100; ++i) {
      const Memory memory = comm.allocate(600u << 10);
      const std::span<float> data = memory.as<float>();
      EXPECT_EQ(data.back(), 0.0f) << "zeroed";
      std::fill(data.begin(), data.end(), static_cast<float>(i));
      comm.all_reduce(view(data), ReduceOp::sum);
      EXPECT_EQ(data.front(), static_cast<float>(2 * i));
    }
  });
}

TEST(RegisteredMemory, ASendThatFitsTheStreamDoesNotWaitForItsReceiver) {
  std::vector<Communicator> ranks = world(2);
  constexpr std::size_t count = limits::ring_bytes_default / 2 / sizeof(float);
  in_threads(ranks, [&](Communicator& comm) {
    const Memory out = comm.allocate(count * sizeof(float)), in = comm.allocate(count * sizeof(float));
    fill(out.as<float>(), comm.rank());
    comm.send(view(out.as<float>()), 1 - comm.rank());
    comm.recv(view(in.as<float>()), 1 - comm.rank());
    std::vector<float> expected(count);
    fill(expected, 1 - comm.rank());
    EXPECT_TRUE(std::ranges::equal(in.as<float>(), expected));
  });
}

TEST(RegisteredMemory, ALongSendReturnsWhenItsReceiverHasItAll) {
  std::vector<Communicator> ranks = world(2);
  const Memory memory = ranks[0].allocate(4u << 20);
  const std::span<float> out = memory.as<float>();
  fill(out, 0);
  Work sent = ranks[0].send_async(ConstView(out.data(), out.size(), DType::f32), 1);
  std::vector<float> in(out.size()), expected(out.size());
  fill(expected, 0);
  std::thread receiver([&] { ranks[1].recv(view(in), 0); });
  sent.wait();
  std::fill(out.begin(), out.end(), -1.0f);  // ours again
  receiver.join();
  EXPECT_EQ(in, expected);
}

TEST(RegisteredMemory, OfAnEndedOperationIsTheCallersAgainAndNobodyTakesItForGood) {
  std::vector<Communicator> ranks = world(2);
  const Memory memory = ranks[0].allocate(4u << 20);
  const std::span<float> out = memory.as<float>();
  Work sent = ranks[0].send_async(ConstView(out.data(), out.size(), DType::f32), 1);
  ranks[0].abort("enough");
  EXPECT_THROW(sent.wait(), Error);
  std::fill(out.begin(), out.end(), -1.0f);
  std::vector<float> in(out.size());
  EXPECT_THROW(ranks[1].recv(view(in), 0), Error);
}

TEST(RegisteredMemory, StaysTheParentsWhenAForkedChildFreesItsCopy) {
  std::vector<Communicator> ranks = world(2);
  Memory memory = ranks[0].allocate(1u << 20);
  const std::span<float> out = memory.as<float>();
  fill(out, 0);
  Work sent = ranks[0].send_async(ConstView(out.data(), out.size(), DType::f32), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    memory = Memory();
    ::_exit(0);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  std::vector<float> in(out.size()), expected(out.size());
  fill(expected, 0);
  ranks[1].recv(view(in), 0);
  sent.wait();
  EXPECT_EQ(in, expected);
}

}  // namespace
}  // namespace gradsync
