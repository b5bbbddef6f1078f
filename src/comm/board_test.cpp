// All-reduces of one host through the public face, by threads over loopback and over shared memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "base/limits.hpp"
#include "base/random.hpp"
#include "comm/dictionary_for_test.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

class Board : public testing::TestWithParam<TransportKind> {
 protected:
  std::vector<Communicator> world(std::uint32_t size, std::chrono::nanoseconds timeout = 20s) {
    Options options;
    options.timeout = timeout;
    if (GetParam() == TransportKind::loopback) return Communicator::threads(size, options);
    options.transport = GetParam(), options.store = std::make_shared<Dictionary>(), options.size = size;
    std::vector<Communicator> made(size);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < size; ++rank)
      threads.emplace_back([&made, rank, mine = options]() mutable {
        mine.rank = rank;
        made[rank] = Communicator::create(mine);
      });
    for (std::thread& thread : threads) thread.join();
    return made;
  }
  // Runs `body` once a rank, each in its thread; an exception is the test's failure.
  static void in_threads(std::vector<Communicator>& ranks, const std::function<void(Communicator&)>& body) {
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
};

INSTANTIATE_TEST_SUITE_P(Kinds, Board, testing::Values(TransportKind::loopback, TransportKind::shm),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

float value(int rank, std::uint64_t call, std::size_t i) {
  return static_cast<float>(static_cast<std::uint64_t>(rank + 1) * (i % 97 + call % 13 + 1));
}
// Whole numbers below 2^24: exact.
float sum(int size, std::uint64_t call, std::size_t i) {
  return static_cast<float>(size * (size + 1) / 2) * static_cast<float>(i % 97 + call % 13 + 1);
}
void expect_sum(std::span<const float> got, int size, std::uint64_t call) {
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], sum(size, call, i)) << "call " << call << ", element " << i << " of " << got.size();
}

TEST_P(Board, LongSequencesOfMixedCallsWithSeveralUnderWayAreRight) {
  for (const std::uint32_t size : {2u, 3u, 5u}) {
    std::vector<Communicator> ranks = world(size);
    in_threads(ranks, [&](Communicator& comm) {
      Random alike(size);  // the same choices on all ranks
      Random mine(static_cast<std::uint64_t>(comm.rank()) + 100);
      constexpr std::size_t kMost = 700'000, kSlots = 4;
      std::vector<Memory> memory;
      std::vector<std::vector<float>> plain(kSlots);
      for (std::size_t k = 0; k < kSlots; ++k) memory.push_back(comm.allocate(kMost * sizeof(float) + 64));
      struct Call {
        std::span<float> data;
        Work work;
        std::uint64_t number;
      };
      std::vector<Call> under_way;
      for (std::uint64_t call = 0; call < 300; ++call) {
        const std::uint64_t shape = alike.below(20);
        const std::size_t count = shape == 0  ? alike.below(kMost)
                                  : shape < 5 ? alike.below(30'000)
                                              : alike.below(limits::board_inline_bytes / sizeof(float));
        const std::size_t slot = call % kSlots;
        if (under_way.size() == kSlots) {
          under_way.front().work.wait();
          expect_sum(under_way.front().data, comm.size(), under_way.front().number);
          under_way.erase(under_way.begin());
        }
        plain[slot].resize(count);
        std::span<float> data = plain[slot];
        if (mine.below(2) == 0) data = memory[slot].as<float>().subspan(mine.below(8), count);
        for (std::size_t i = 0; i < count; ++i) data[i] = value(comm.rank(), call, i);
        const View all{data.data(), count, DType::f32};
        under_way.push_back({data, comm.all_reduce_async(all, ReduceOp::sum), call});
        if (alike.below(10) == 0) comm.barrier();
        if (alike.below(10) == 0) {
          std::vector<std::int32_t> one = {comm.rank()}, every(static_cast<std::size_t>(comm.size()));
          comm.all_gather(view(std::as_const(one)), view(every));
          for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(every[static_cast<std::size_t>(r)], r);
        }
        if (alike.below(10) == 0) {  // a ring of messages
          std::vector<std::int32_t> out(alike.below(9000) + 1, comm.rank()), in(out.size());
          Work sent = comm.send_async(view(std::as_const(out)), (comm.rank() + 1) % comm.size());
          comm.recv(view(in), (comm.rank() + comm.size() - 1) % comm.size());
          sent.wait();
          EXPECT_EQ(in.back(), (comm.rank() + comm.size() - 1) % comm.size());
        }
        if (mine.below(20) == 0) std::this_thread::sleep_for(std::chrono::microseconds(mine.below(3000)));
      }
      for (Call& call : under_way) {
        call.work.wait();
        expect_sum(call.data, comm.size(), call.number);
      }
    });
  }
}

TEST_P(Board, CommunicatorsOfOneProcessMeetAtBoardsOfTheirOwn) {
  std::vector<Communicator> ranks = world(4);
  in_threads(ranks, [](Communicator& comm) {
    Communicator pair = comm.split(comm.rank() % 2), all = comm.split(0);
    const Memory memory = comm.allocate(3u << 20);
    const std::span<float> halves[] = {memory.as<float>().first(300'001), memory.as<float>().subspan(300'001, 400'000)};
    for (std::uint64_t call = 0; call < 20; ++call) {
      for (std::size_t i = 0; i < halves[0].size(); ++i) halves[0][i] = value(pair.rank(), call, i);
      for (std::size_t i = 0; i < halves[1].size(); ++i) halves[1][i] = value(comm.rank(), call, i);
      std::vector<float> small = {value(comm.rank(), call, 0)};
      Work a = pair.all_reduce_async(view(halves[0]), ReduceOp::sum);
      Work b = all.all_reduce_async(view(halves[1]), ReduceOp::sum);
      comm.all_reduce(view(small), ReduceOp::sum);
      b.wait(), a.wait();
      expect_sum(halves[0], 2, call);
      expect_sum(halves[1], 4, call);
      expect_sum(small, 4, call);
    }
  });
}

TEST_P(Board, MoreRanksThanABoardHasUseStreams) {
  std::vector<Communicator> ranks = world(limits::board_ranks_max + 1);
  in_threads(ranks, [](Communicator& comm) {
    for (std::uint64_t call = 0; call < 3; ++call) {
      std::vector<float> data(1000);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(comm.rank(), call, i);
      comm.all_reduce(view(data), ReduceOp::sum);
      expect_sum(data, comm.size(), call);
      comm.barrier();
    }
  });
}

TEST_P(Board, AMismatchReachesEveryRankAndNamesBothCalls) {
  struct Other {
    std::function<void(Communicator&)> call;
    std::string words;
  };
  static std::vector<float> x(4000);
  const std::vector<Other> others = {{[](Communicator& comm) {
                                        std::vector<float> y(999);
                                        comm.all_reduce(view(y), ReduceOp::sum);
                                      },
                                      "999 f32"},
                                     {[](Communicator& comm) {
                                        std::vector<float> y(100'000);
                                        comm.all_reduce(view(y), ReduceOp::sum);
                                      },
                                      "100000 f32"},
                                     {[](Communicator& comm) {
                                        std::vector<std::int32_t> y(1000);
                                        comm.all_reduce(view(y), ReduceOp::sum);
                                      },
                                      "i32"},
                                     {[](Communicator& comm) {
                                        std::vector<float> y(1000);
                                        comm.all_reduce(view(y), ReduceOp::max);
                                      },
                                      "max"},
                                     {[](Communicator& comm) {
                                        std::vector<float> y(1000);
                                        comm.all_reduce(view(y), ReduceOp::sum, {.algorithm = Algorithm::ring});
                                      },
                                      "by ring"},
                                     {[](Communicator& comm) { comm.barrier(); }, "barrier"},
                                     {[](Communicator& comm) {
                                        std::vector<float> y(1000);
                                        comm.broadcast(view(y), 0);
                                      },
                                      "broadcast of 1000 f32"},
                                     {[](Communicator& comm) {
                                        std::vector<float> y(1000);
                                        comm.broadcast(view(y), 1);
                                      },
                                      "broadcast of 1000 f32"}};
  for (const Other& other : others)
    for (const int odd : {0, 1, 2})
      for (const int before : {0, 3}) {
        SCOPED_TRACE(other.words + " of rank " + std::to_string(odd) + " after " + std::to_string(before));
        std::vector<Communicator> ranks = world(3);
        in_threads(ranks, [&](Communicator& comm) {
          std::vector<float> data(1000);
          for (int i = 0; i < before; ++i) comm.all_reduce(view(data), ReduceOp::sum);
          try {
            if (comm.rank() == odd) other.call(comm);
            else comm.all_reduce(view(data), ReduceOp::sum);
            comm.barrier();
            ADD_FAILURE() << "rank " << comm.rank() << " saw nothing";
          } catch (const Error& error) {
            const std::string what = error.what();
            EXPECT_EQ(error.code(), ErrorCode::mismatch) << what;
            EXPECT_NE(what.find("all_reduce of 1000 f32, sum"), std::string::npos) << what;
            EXPECT_NE(what.find(other.words), std::string::npos) << what;
          }
        });
      }
}

TEST_P(Board, ADeadlineNamesTheRankThatDidNotCome) {
  for (const bool greeted : {false, true}) {
    std::vector<Communicator> ranks = world(3);
    if (greeted) in_threads(ranks, [](Communicator& comm) { comm.barrier(); });
    std::vector<std::thread> threads;
    for (const std::size_t r : {0u, 1u})
      threads.emplace_back([&, r] {
        std::vector<float> data(10);
        try {
          ranks[r].all_reduce(view(data), ReduceOp::sum, {.timeout = 100ms});
          ADD_FAILURE() << "rank 2 never came";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
          EXPECT_EQ(error.peer(), 2) << error.what();
          EXPECT_NE(std::string(error.what()).find("rank 2 to join"), std::string::npos) << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Board, AnAbortEndsAWaitThere) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1'000'000}}) {
    std::vector<Communicator> ranks = world(3, 60s);
    in_threads(ranks, [](Communicator& comm) { comm.barrier(); });
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    for (const std::size_t r : {0u, 1u})
      threads.emplace_back([&, r] {
        const Memory memory = ranks[r].allocate(count * sizeof(float));
        ++begun;
        try {
          ranks[r].all_reduce(view(memory.as<float>()), ReduceOp::sum);
          ADD_FAILURE() << "rank 2 never came";
        } catch (const Error& error) { EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what(); }
      });
    while (begun < 2) std::this_thread::yield();
    std::this_thread::sleep_for(count > 1 ? 30ms : 0ms);  // they may sleep by now, or not: either must end
    ranks[0].abort("enough");
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Board, ARankThatDestroysItsCommunicatorAfterItsLastCallHarmsNobody) {
  for (int round = 0; round < 30; ++round) {
    std::vector<Communicator> ranks = world(3);
    in_threads(ranks, [&](Communicator& comm) {
      const std::size_t count = round % 3 == 0 ? 1 : round % 3 == 1 ? 50'000 : 400'000;
      const Memory memory = comm.allocate(count * sizeof(float));
      const std::span<float> data = memory.as<float>();
      for (std::uint64_t call = 0; call < 3; ++call) {
        for (std::size_t i = 0; i < count; ++i) data[i] = value(comm.rank(), call, i);
        comm.all_reduce(view(data), ReduceOp::sum);
        expect_sum(data, 3, call);
      }
      comm.destroy();
    });
  }
}

}  // namespace
}  // namespace gradsync
