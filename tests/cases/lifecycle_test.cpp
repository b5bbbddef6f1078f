// L6: communicators that come and go leave nothing: no descriptor, thread, mapping or memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "world.hpp"

namespace gradsync::cases {
namespace {

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// What this process holds.
struct Held {
  std::size_t descriptors = 0, threads = 0, maps = 0, rss_kib = 0;
};
Held held_now() {
  Held held{entries_of("/proc/self/fd"), entries_of("/proc/self/task"), 0, 0};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++held.maps;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") status >> held.rss_kib;
  return held;
}

// The same once the background thread has let go of what was dropped last; it has two seconds for that.
Held held_at_rest(const Held& expected) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  Held held = held_now();
  while (held.descriptors > expected.descriptors && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
    held = held_now();
  }
  return held;
}

// Uses a communicator so that its streams are opened.
void use(Communicator& comm) {
  std::vector<std::int32_t> ones(300, 1);
  comm.all_reduce(view(ones), ReduceOp::sum);
  EXPECT_EQ(ones.back(), comm.size());
}

void make_and_drop(Communicator& comm, int how_many) {
  const std::vector<int> everyone = {1, 0};
  for (int i = 0; i < how_many; ++i) {
    Communicator child = i % 2 == 0 ? comm.split(0) : comm.group(everyone);
    use(child);
    if (i % 3 == 0) {
      Work work = child.barrier_async();
      work.wait();
    }
  }
}

void hold_at_once(Communicator& comm, int how_many) {
  const std::vector<int> everyone = {1, 0};
  std::vector<Communicator> children;
  for (int i = 0; i < how_many; ++i) children.push_back(i % 2 == 0 ? comm.split(i) : comm.group(everyone));
  for (Communicator& child : children) use(child);
  comm.barrier();
}

class CaseL6 : public testing::TestWithParam<Medium> {};

TEST_P(CaseL6, FiveHundredCommunicatorsAndAHundredAtOnceLeaveNothing) {
  constexpr int kMany = 500, kWarmUp = kMany, kAtOnce = 100;  // the heap is as large as it gets after one such round
  std::vector<Communicator> ranks = open({.size = 2, .medium = GetParam(), .timeout = std::chrono::seconds(20)});
  Held before, after;
  std::barrier both(2);
  on_ranks(ranks, [&](Communicator& comm) {
    const auto measure = [&](Held& into, const Held& expected) {
      comm.barrier();
      both.arrive_and_wait();
      if (comm.rank() == 0) into = held_at_rest(expected);
      both.arrive_and_wait();
    };
    make_and_drop(comm, kWarmUp);
    hold_at_once(comm, kAtOnce);
    measure(before, held_now());
    make_and_drop(comm, kMany);
    hold_at_once(comm, kAtOnce);
    measure(after, before);
  });
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // The allocator may add a heap segment or split one: two mappings for each of the two threads and the progress threads.
  EXPECT_LE(after.maps, before.maps + 8);
  // One leaked KiB for each of the 600 communicators and ranks would be 1.2 MiB; the allocator's own growth stays below.
  EXPECT_LE(after.rss_kib, before.rss_kib + 1200);
}

TEST_P(CaseL6, WholeWorldsThatComeAndGoLeaveNothing) {
  const auto once = [] {
    std::vector<Communicator> ranks = open({.size = 2, .medium = GetParam()});
    on_ranks(ranks, use);
  };
  for (int i = 0; i < 10; ++i) once();
  const Held before = held_now();
  for (int i = 0; i < 50; ++i) once();
  const Held after = held_at_rest(before);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.maps, before.maps + 8);
  EXPECT_LE(after.rss_kib, before.rss_kib + 1200);
}

INSTANTIATE_TEST_SUITE_P(, CaseL6, testing::ValuesIn(kMedia),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace gradsync::cases
