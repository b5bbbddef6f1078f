// Sends and receives with tags and from any rank, by ranks that are threads of one process and talk over each transport.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>

#include "base/random.hpp"
#include "comm/point_to_point_for_test.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

OVER_EVERY_TRANSPORT(PointToPoint);

std::vector<std::int32_t> values(int from, std::uint32_t tag, std::size_t count) {
  std::vector<std::int32_t> v(count);
  std::iota(v.begin(), v.end(), from * 1000003 + static_cast<std::int32_t>(tag) * 10007);
  return v;
}

// A thread that another one wants to see asleep in the system.
class Sleeper {
 public:
  void here() { id_.store(static_cast<int>(::syscall(SYS_gettid))); }
  bool asleep_by(std::chrono::steady_clock::time_point when) const {
    while (std::chrono::steady_clock::now() < when) {
      if (const int id = id_.load(); id != 0 && state_of(id) == 'S') return true;
      std::this_thread::yield();
    }
    return false;
  }

 private:
  static char state_of(int id) {
    std::ifstream file("/proc/self/task/" + std::to_string(id) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t bracket = line.rfind(')');
    return bracket == std::string::npos || bracket + 2 >= line.size() ? '?' : line[bracket + 2];
  }
  std::atomic<int> id_{0};
};

TEST_P(PointToPoint, AMessageOfAnotherTagHoldsNothingUpWhateverItsSize) {
  for (const std::size_t first : {0u, 1u, 1000u, 100'000u, 3'000'000u})
    for (const std::size_t second : {0u, 1u, 100'000u, 1'000'000u})
      in_world(2, [&](Communicator& comm) {
        const int peer = 1 - comm.rank();
        if (comm.rank() == 0) {  // blocking: the first must have left before the second begins
          comm.send(view(values(0, 1, first)), peer, {.tag = 1});
          comm.send(view(values(0, 2, second)), peer, {.tag = 2});
          return;
        }
        std::vector<std::int32_t> one(first), two(second);
        EXPECT_EQ(comm.recv(view(two), peer, {.tag = 2}), 0);
        EXPECT_EQ(two, values(0, 2, second));
        EXPECT_EQ(comm.recv(view(one), any_rank, {.tag = 1}), 0);
        EXPECT_EQ(one, values(0, 1, first));
      });
}

TEST_P(PointToPoint, RegisteredMemoryIsKeptTooWhereAnotherTagIsAwaited) {
  in_world(2, [&](Communicator& comm) {
    constexpr std::size_t kCount = 1'000'000;
    const int peer = 1 - comm.rank();
    Memory memory = comm.allocate(kCount * 4);
    std::vector<std::int32_t> one(kCount), two(1);
    std::ranges::copy(values(comm.rank(), 1, kCount), memory.as<std::int32_t>().begin());
    Work large = comm.send_async(view(memory.as<std::int32_t>()), peer, {.tag = 1});
    const std::vector<std::int32_t> two_out = values(0, 2, 1);
    Work small = comm.send_async(view(two_out), peer, {.tag = 2});
    comm.recv(view(two), peer, {.tag = 2});
    comm.recv(view(one), peer, {.tag = 1});
    EXPECT_EQ(one, values(peer, 1, kCount));
    large.wait();
    small.wait();
  });
}

TEST_P(PointToPoint, ManyTagsInReverse) {
  in_world(3, [&](Communicator& comm) {
    constexpr std::uint32_t kTags = 300;
    const int to = (comm.rank() + 1) % 3, from = (comm.rank() + 2) % 3;
    std::vector<std::vector<std::int32_t>> out, in(kTags, std::vector<std::int32_t>(50));
    std::vector<Work> works;
    for (std::uint32_t tag = 0; tag < kTags; ++tag) out.push_back(values(comm.rank(), tag, 50));
    for (std::uint32_t tag = 0; tag < kTags; ++tag)
      works.push_back(comm.send_async(view(std::as_const(out[tag])), to, {.tag = tag}));
    for (std::uint32_t tag = kTags; tag-- > 0;) comm.recv(view(in[tag]), from, {.tag = tag});
    for (Work& work : works) {
      work.wait();
      EXPECT_EQ(work.source(), -1);
    }
    for (std::uint32_t tag = 0; tag < kTags; ++tag) EXPECT_EQ(in[tag], values(from, tag, 50));
  });
}

TEST_P(PointToPoint, AnyRankTakesWhatEachSentInOrder) {
  for (const std::uint32_t size : {2u, 3u, 5u})
    in_world(size, [&](Communicator& comm) {
      constexpr int kEach = 50;
      if (comm.rank() != 0) {
        for (int i = 0; i < kEach; ++i) {
          std::vector<std::int32_t> data(1 + 1000 * static_cast<std::size_t>(i % 2), comm.rank() * 1000 + i);
          comm.send(view(std::as_const(data)), 0, {.tag = static_cast<std::uint32_t>(i % 2)});
        }
        return;
      }
      std::map<int, int> next[2];
      for (int i = 0; i < kEach * (comm.size() - 1); ++i) {
        const bool odd = i % 2 == 1;
        std::vector<std::int32_t> data(odd ? 1001 : 1);
        const int source = comm.recv(view(data), any_rank, {.tag = odd ? 1u : 0u});
        int& number = next[odd][source];
        EXPECT_EQ(data.front(), source * 1000 + 2 * number + odd);
        EXPECT_EQ(data.back(), data.front());
        ++number;
      }
      for (const auto& numbers : next) {
        EXPECT_EQ(numbers.size(), size - 1);
        for (const auto& [source, number] : numbers) EXPECT_EQ(number, kEach / 2) << "rank " << source;
      }
    });
}

// A message wakes a receiver that sleeps, from a rank that never sent to it before and from one that did.
TEST_P(PointToPoint, AReceiveOfAnyRankSleepsUntilAMessageComes) {
  Sleeper sleeper;
  in_world(3, [&](Communicator& comm) {
    std::vector<std::int32_t> data(1);
    for (int round = 0; round < 4; ++round) {
      const int sender = 1 + round % 2;
      if (comm.rank() == 0) {
        sleeper.here();
        EXPECT_EQ(comm.recv(view(data), any_rank), sender);
        EXPECT_EQ(data[0], round);
      } else if (comm.rank() == sender) {
        EXPECT_TRUE(sleeper.asleep_by(std::chrono::steady_clock::now() + 10s));
        data[0] = round;
        comm.send(view(std::as_const(data)), 0);
      }
      comm.barrier();
    }
  });
}

TEST_P(PointToPoint, TheProgressThreadReceivesFromAnyRank) {
  in_world(3, [&](Communicator& comm) {
    if (comm.rank() != 0) {
      std::vector<std::int32_t> data(200'000, comm.rank());
      comm.send(view(std::as_const(data)), 0, {.tag = 4});
      return;
    }
    std::vector<std::int32_t> one(200'000), two(200'000);
    Work first = comm.recv_async(view(one), any_rank, {.tag = 4}),
         second = comm.recv_async(view(two), any_rank, {.tag = 4});
    EXPECT_TRUE(first.source() == -1 || first.done());
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!(first.done() && second.done()) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    ASSERT_TRUE(first.done() && second.done());
    EXPECT_EQ(first.source() + second.source(), 3);
    EXPECT_EQ(one.back(), first.source());
    EXPECT_EQ(two.back(), second.source());
  });
}

TEST_P(PointToPoint, ReceivesGetMessagesInTheOrderInWhichTheyWerePosted) {
  in_world(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.barrier();  // all four are posted
      for (const std::int32_t value : {10, 11, 12, 13}) comm.send(view(std::vector<std::int32_t>{value}), 0);
      return;
    }
    std::vector<std::vector<std::int32_t>> got(4, std::vector<std::int32_t>(1));
    std::vector<Work> works;
    const int from[] = {any_rank, 1, any_rank, 1};
    for (std::size_t i = 0; i < 4; ++i) works.push_back(comm.recv_async(view(got[i]), from[i]));
    comm.barrier();
    for (std::size_t i = 0; i < 4; ++i) {
      works[i].wait();
      EXPECT_EQ(works[i].source(), 1);
      EXPECT_EQ(got[i][0], static_cast<std::int32_t>(10 + i));
    }
  });
}

TEST_P(PointToPoint, ThreadsOfOneRankReceiveTagsOfTheirOwn) {
  in_world(2, [&](Communicator& comm) {
    constexpr std::uint32_t kThreads = 4;
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint32_t tag = 0; tag < kThreads; ++tag)
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 100; ++i) {
          std::vector<std::int32_t> data = values(comm.rank() * 500 + i, tag, 20), got(20);
          Work sent = comm.send_async(view(std::as_const(data)), 1 - comm.rank(), {.tag = tag});
          comm.recv(view(got), i % 2 ? any_rank : 1 - comm.rank(), {.tag = tag});
          wrong += got != values((1 - comm.rank()) * 500 + i, tag, 20);
          sent.wait();
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST_P(PointToPoint, CollectivesGoOnBesideMessagesThatNobodyTakes) {
  in_world(3, [&](Communicator& comm) {
    std::vector<std::int32_t> large = values(comm.rank(), 9, 500'000), got(500'000), sum = {comm.rank()}, none(1);
    Work sent = comm.send_async(view(std::as_const(large)), (comm.rank() + 1) % 3, {.tag = 9});
    Work late = comm.recv_async(view(none), any_rank, {.tag = 5});
    for (int i = 0; i < 20; ++i) comm.all_reduce(view(sum), ReduceOp::max);
    EXPECT_EQ(sum[0], 2);
    EXPECT_EQ(comm.recv(view(got), any_rank, {.tag = 9}), (comm.rank() + 2) % 3);
    EXPECT_EQ(got, values((comm.rank() + 2) % 3, 9, 500'000));
    Work last = comm.send_async(view(std::as_const(sum)), (comm.rank() + 1) % 3, {.tag = 5});
    late.wait();
    last.wait();
    sent.wait();
  });
}

// Random programs: each rank sends to and receives from the others in an order that the seed gives, some from any rank.
// Receives of one tag are all of any rank or all of given ranks, so that every message has its receive.
TEST_P(PointToPoint, RandomProgramsEndAndEachMessageComesOnce) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random shape(seed);
    const auto size = static_cast<std::uint32_t>(2 + shape.below(4));
    const std::size_t counts[] = {1, 20'000, 3, 700};  // by tag; odd tags are received from any rank
    std::vector<std::vector<std::vector<std::uint32_t>>> sent(size, std::vector<std::vector<std::uint32_t>>(size));
    for (std::uint32_t from = 0; from < size; ++from)
      for (std::uint32_t to = 0; to < size; ++to)
        for (std::uint64_t n = from == to ? 0 : shape.below(12); n > 0; --n)
          sent[from][to].push_back(static_cast<std::uint32_t>(shape.below(4)));
    fault_seed = seed % 2 ? seed : 0;
    in_world(size, [&](Communicator& comm) {
      Random random(mix64(seed) ^ static_cast<std::uint64_t>(comm.rank()));
      const auto me = static_cast<std::uint32_t>(comm.rank());
      struct Ask {
        bool sends;
        int peer;
        std::uint32_t tag;
      };
      std::vector<Ask> sends, receives;
      for (std::uint32_t peer = 0; peer < size; ++peer) {
        for (const std::uint32_t tag : sent[me][peer]) sends.push_back({true, static_cast<int>(peer), tag});
        for (const std::uint32_t tag : sent[peer][me])
          receives.push_back({false, tag % 2 ? any_rank : static_cast<int>(peer), tag});
      }
      const auto shuffle = [&](std::vector<Ask>& asks) {
        for (std::size_t i = asks.size(); i > 1; --i) std::swap(asks[i - 1], asks[random.below(i)]);
      };
      shuffle(receives);
      std::vector<Ask> program = receives;
      for (const Ask& send : sends)  // in order for each peer; where among the receives does not matter
        program.insert(program.begin() + static_cast<std::ptrdiff_t>(random.below(program.size() + 1)), send);
      std::stable_partition(program.begin(), program.end(),
                            [&](const Ask& ask) { return ask.sends && random.below(2); });
      std::map<std::pair<int, std::uint32_t>, std::vector<std::int32_t>> got;
      std::map<int, std::int32_t> number;
      std::vector<std::vector<std::int32_t>> memory;
      std::vector<Work> works;
      for (const Ask& ask : program) {
        memory.emplace_back(counts[ask.tag], ask.sends ? number[ask.peer]++ : -1);
        if (ask.sends) memory.back().front() = static_cast<std::int32_t>(memory.back().back());
        works.push_back(ask.sends ? comm.send_async(view(std::as_const(memory.back())), ask.peer, {.tag = ask.tag})
                                  : comm.recv_async(view(memory.back()), ask.peer, {.tag = ask.tag}));
      }
      for (std::size_t i = 0; i < program.size(); ++i) {
        works[i].wait();
        if (program[i].sends) continue;
        EXPECT_TRUE(program[i].peer == any_rank || program[i].peer == works[i].source());
        EXPECT_EQ(memory[i].front(), memory[i].back());
        got[{works[i].source(), program[i].tag}].push_back(memory[i].front());
      }
      // The numbers of a sender's messages rise within a tag, in the order in which the receives were posted.
      std::size_t all = 0;
      for (const auto& [key, numbers] : got) {
        EXPECT_TRUE(std::ranges::is_sorted(numbers, std::less_equal<>()))
            << "from " << key.first << " tag " << key.second;
        all += numbers.size();
      }
      EXPECT_EQ(all, receives.size());
    });
  }
}

}  // namespace
}  // namespace gradsync
