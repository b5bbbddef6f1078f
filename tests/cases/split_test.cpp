// O5: a communicator that is split by several threads, or while something is under way on it.
#include <gtest/gtest.h>

#include <thread>

#include "world.hpp"

namespace gradsync::cases {
namespace {

// What a child communicator must do: all its members are there and agree.
void expect_usable(Communicator& child) {
  std::vector<std::int32_t> ones(3001, 1);
  child.all_reduce(view(ones), ReduceOp::sum);
  EXPECT_EQ(ones.front(), child.size());
  EXPECT_EQ(ones.back(), child.size());
  child.barrier();
}

// Splits by `threads` threads of every rank at once. Which of a rank's splits meets which of another's is open, as nothing
// orders them; every one of them must make a usable communicator or fail with a type.
void split_at_once(const World& world, int threads, const std::function<int(int thread, int rank)>& color) {
  in_world(world, [&](Communicator& comm) {
    std::vector<std::thread> splitters;
    std::vector<std::string> problems(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; ++t)
      splitters.emplace_back([&, t] {
        try {
          for (int again = 0; again < 3; ++again) {
            Communicator child = comm.split(color(t, comm.rank()), comm.rank());
            expect_usable(child);
          }
        } catch (const Error& error) { problems[static_cast<std::size_t>(t)] = error.what(); }
      });
    for (std::thread& splitter : splitters) splitter.join();
    for (const std::string& problem : problems) EXPECT_EQ(problem, "");
    comm.barrier();
  });
}

TEST(CaseO5, TwoThreadsSplitOneCommunicatorAtOnce) {
  for (Medium medium : kMedia)
    for (std::uint32_t size : {2u, 4u})
      split_at_once({.size = size, .medium = medium, .timeout = std::chrono::seconds(10)}, 2,
                    [](int, int) { return 7; });
}

TEST(CaseO5, TwoThreadsSplitByDifferentColoursAtOnce) {
  for (Medium medium : kMedia)
    split_at_once({.size = 4, .medium = medium, .timeout = std::chrono::seconds(10)}, 2,
                  [](int t, int rank) { return rank % 2 + 2 * t; });
}

TEST(CaseO5, ASplitWhileAnAllReduceIsOutstanding) {
  for (Medium medium : kMedia)
    in_world({.size = 4, .medium = medium, .timeout = std::chrono::seconds(10)}, [](Communicator& comm) {
      std::vector<float> gradients(1 << 20, static_cast<float>(comm.rank()));
      for (int again = 0; again < 3; ++again) {
        std::fill(gradients.begin(), gradients.end(), static_cast<float>(comm.rank()));
        Work work = comm.all_reduce_async(view(std::as_const(gradients)), view(gradients), ReduceOp::sum);
        Communicator child = comm.split(comm.rank() / 2);
        EXPECT_EQ(child.size(), 2);
        Work inner = child.barrier_async();
        work.wait();
        inner.wait();
        EXPECT_EQ(gradients.front(), 6.0f);
        EXPECT_EQ(gradients.back(), 6.0f);
        expect_usable(child);
      }
    });
}

TEST(CaseO5, AGroupMadeWhileItsParentIsBusyAndUsedAfterItsParentIsGone) {
  for (Medium medium : kMedia)
    in_world({.size = 3, .medium = medium, .timeout = std::chrono::seconds(10)}, [](Communicator& parent) {
      Communicator comm = parent.split(0);
      std::vector<float> gradients(1 << 18, 1.0f);
      Work work = comm.all_reduce_async(view(std::as_const(gradients)), view(gradients), ReduceOp::sum);
      const std::vector<int> members = {2, 0, 1};
      Communicator child = comm.group(members);
      work.wait();
      parent.barrier();  // nobody destroys what another still needs
      comm.destroy();
      expect_usable(child);
    });
}

}  // namespace
}  // namespace gradsync::cases
