// Communicators of threads: every collective by every algorithm of the catalogue, in place and apart, several worlds.
#include "gradsync/communicator.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>

#include "algorithms/catalogue.hpp"
#include "base/limits.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

// Runs `body` once a rank, each in its thread; the first exception is the test's failure.
void in_threads(std::uint32_t size, const std::function<void(Communicator&)>& body) {
  Options options;
  options.timeout = 20s;
  std::vector<Communicator> ranks = Communicator::threads(size, options);
  std::vector<std::thread> threads;
  std::vector<std::string> problems(size);
  for (std::uint32_t r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        body(ranks[r]);
      } catch (const std::exception& error) { problems[r] = error.what(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t r = 0; r < size; ++r) EXPECT_EQ(problems[r], "") << "rank " << r << " of " << size;
}

// What rank r contributes at position i: small whole numbers, never 0, that differ between ranks and positions.
std::int32_t value(int rank, std::size_t i) {
  return static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) + 1;
}
std::int32_t sum_at(int size, std::size_t i) {
  std::int32_t sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i);
  return sum;
}
std::vector<std::int32_t> values(int rank, std::size_t count) {
  std::vector<std::int32_t> v(count);
  for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i);
  return v;
}

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found = {Algorithm::automatic};
  for (const CatalogueEntry& entry : catalogue())
    if (entry.collective == collective) found.push_back(entry.algorithm);
  return found;
}

const std::vector<std::size_t> kCounts = {0, 1, 3, 8, 100, 4099, 40001};

TEST(Communicator, AllReducesByEveryAlgorithm) {
  for (std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 7u, 8u})
    in_threads(size, [&](Communicator& comm) {
      for (Algorithm algorithm : algorithms_of(Collective::all_reduce))
        for (std::size_t count : kCounts) {
          SCOPED_TRACE(std::string(name_of(algorithm)) + " " + std::to_string(count));
          std::vector<std::int32_t> in = values(comm.rank(), count), out(count), expected(count);
          for (std::size_t i = 0; i < count; ++i) expected[i] = sum_at(comm.size(), i);
          const std::vector<std::int32_t> before = in;
          comm.all_reduce(view(std::as_const(in)), view(out), ReduceOp::sum, {.algorithm = algorithm});
          EXPECT_EQ(out, expected);
          EXPECT_EQ(in, before);
          comm.all_reduce(view(in), ReduceOp::sum, {.algorithm = algorithm});
          EXPECT_EQ(in, expected);
        }
    });
}

TEST(Communicator, ReduceScattersAndGathersInPlaceAndApart) {
  for (std::uint32_t size : {1u, 2u, 3u, 5u, 8u})
    in_threads(size, [&](Communicator& comm) {
      const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
      for (Algorithm algorithm : algorithms_of(Collective::reduce_scatter))
        for (std::size_t block : kCounts) {
          std::vector<std::int32_t> in = values(comm.rank(), block * ranks), out(block), expected(block);
          for (std::size_t i = 0; i < block; ++i) expected[i] = sum_at(comm.size(), me * block + i);
          const std::vector<std::int32_t> before = in;
          comm.reduce_scatter(view(std::as_const(in)), view(out), ReduceOp::sum, {.algorithm = algorithm});
          EXPECT_EQ(out, expected);
          EXPECT_EQ(in, before);
          const std::span<std::int32_t> mine = std::span(in).subspan(me * block, block);
          comm.reduce_scatter(view(std::as_const(in)), view(mine), ReduceOp::sum, {.algorithm = algorithm});
          EXPECT_TRUE(std::equal(mine.begin(), mine.end(), expected.begin()));
        }
      for (Algorithm algorithm : algorithms_of(Collective::all_gather))
        for (std::size_t block : kCounts) {
          std::vector<std::int32_t> all, in = values(comm.rank(), block), out(block * ranks), place(block * ranks);
          for (int r = 0; r < comm.size(); ++r)
            for (std::int32_t v : values(r, block)) all.push_back(v);
          comm.all_gather(view(std::as_const(in)), view(out), {.algorithm = algorithm});
          EXPECT_EQ(out, all);
          const std::span<std::int32_t> mine = std::span(place).subspan(me * block, block);
          std::copy(in.begin(), in.end(), mine.begin());
          comm.all_gather(ConstView(mine.data(), mine.size(), DType::i32), view(place), {.algorithm = algorithm});
          EXPECT_EQ(place, all);
        }
    });
}

TEST(Communicator, RootedCollectivesFromEveryRoot) {
  for (std::uint32_t size : {1u, 2u, 3u, 6u})
    in_threads(size, [&](Communicator& comm) {
      const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
      for (int root = 0; root < comm.size(); ++root)
        for (Algorithm algorithm : algorithms_of(Collective::broadcast))
          for (std::size_t n : kCounts) {
            std::vector<std::int32_t> data = values(comm.rank(), n);
            comm.broadcast(view(data), root, {.algorithm = algorithm});
            EXPECT_EQ(data, values(root, n));

            std::vector<std::int32_t> in = values(comm.rank(), n), out(n, -1), sums(n);
            for (std::size_t i = 0; i < n; ++i) sums[i] = sum_at(comm.size(), i);
            comm.reduce(view(std::as_const(in)), view(out), ReduceOp::sum, root, {.algorithm = algorithm});
            EXPECT_EQ(out, comm.rank() == root ? sums : std::vector<std::int32_t>(n, -1));

            std::vector<std::int32_t> all(comm.rank() == root ? n * ranks : 0), expected;
            for (int r = 0; r < comm.size(); ++r)
              for (std::int32_t v : values(r, n)) expected.push_back(v);
            comm.gather(view(std::as_const(in)), view(all), root, {.algorithm = algorithm});
            EXPECT_EQ(all, comm.rank() == root ? expected : std::vector<std::int32_t>());
            std::vector<std::int32_t> part(n);
            comm.scatter(view(std::as_const(all)), view(part), root, {.algorithm = algorithm});
            EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(me * n)));
          }
    });
}

TEST(Communicator, UnevenBlocksAndExchanges) {
  for (std::uint32_t size : {1u, 2u, 3u, 5u, 8u})
    in_threads(size, [&](Communicator& comm) {
      const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
      std::vector<std::size_t> counts(ranks), sent(ranks), got(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        counts[r] = (r * 37) % 5 * 1000 + r;
        sent[r] = (me * 3 + r) % 4 * 500 + r;
        got[r] = (r * 3 + me) % 4 * 500 + me;
      }
      const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      std::vector<std::int32_t> all, in = values(comm.rank(), counts[me]), out(total);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::int32_t v : values(static_cast<int>(r), counts[r])) all.push_back(v);
      for (Algorithm algorithm : algorithms_of(Collective::all_gather)) {
        comm.all_gather(view(std::as_const(in)), view(out), counts, {.algorithm = algorithm});
        EXPECT_EQ(out, all);
      }
      const std::vector<std::int32_t> whole = values(comm.rank(), total);
      const std::size_t first = std::accumulate(counts.begin(), counts.begin() + comm.rank(), std::size_t{0});
      for (Algorithm algorithm : algorithms_of(Collective::reduce_scatter)) {
        std::vector<std::int32_t> mine(counts[me]);
        comm.reduce_scatter(view(whole), view(mine), counts, ReduceOp::sum, {.algorithm = algorithm});
        for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_EQ(mine[i], sum_at(comm.size(), first + i));
      }
      std::vector<std::int32_t> out_blocks, in_blocks,
          received(std::accumulate(got.begin(), got.end(), std::size_t{0}));
      for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < sent[r]; ++i)
          out_blocks.push_back(static_cast<std::int32_t>(me * 1000003 + r * 1009 + i));
        for (std::size_t i = 0; i < got[r]; ++i)
          in_blocks.push_back(static_cast<std::int32_t>(r * 1000003 + me * 1009 + i));
      }
      comm.all_to_all(view(std::as_const(out_blocks)), view(received), sent, got);
      EXPECT_EQ(received, in_blocks);
      std::vector<std::int32_t> place(ranks * 3);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t i = 0; i < 3; ++i) place[r * 3 + i] = static_cast<std::int32_t>(me * 100 + r);
      comm.all_to_all(view(std::as_const(place)), view(place));
      for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(place[r * 3 + 2], static_cast<std::int32_t>(r * 100 + me));
    });
}

TEST(Communicator, SendsBothWaysAtOnceAndInOrder) {
  in_threads(2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<std::int32_t> big = values(comm.rank(), 1000000), got(big.size()), small = {comm.rank()}, got_small(1);
    Work a = comm.send_async(view(std::as_const(big)), peer), b = comm.send_async(view(std::as_const(small)), peer);
    std::vector<std::int32_t> reduced = values(comm.rank(), 5000);
    comm.all_reduce(view(reduced), ReduceOp::sum);  // goes past the sends
    Work c = comm.recv_async(view(got), peer), d = comm.recv_async(view(got_small), peer);
    a.wait(), b.wait(), c.wait(), d.wait();
    EXPECT_EQ(got, values(peer, big.size()));
    EXPECT_EQ(got_small[0], peer);
    EXPECT_EQ(reduced[17], sum_at(2, 17));
  });
}

TEST(Communicator, ManyAsynchronousReductionsEndInOrder) {
  in_threads(4, [](Communicator& comm) {
    std::vector<std::vector<float>> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 200; ++i) buffers.emplace_back(1 + (i * 97) % 3000, static_cast<float>(comm.rank() + i));
    for (auto& buffer : buffers)
      works.push_back(comm.all_reduce_async(view(std::as_const(buffer)), view(buffer), ReduceOp::avg));
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i].wait();
      EXPECT_EQ(works[i].sequence(), i + 1);
      for (float x : buffers[i]) EXPECT_EQ(x, 1.5f + static_cast<float>(i));
    }
  });
}

TEST(Communicator, SplitsByColourAndGroupsWithoutTheOthers) {
  in_threads(7, [](Communicator& comm) {
    Communicator part = comm.split(comm.rank() == 6 ? -1 : comm.rank() % 2, -comm.rank());
    if (comm.rank() == 6) {
      EXPECT_FALSE(part);
    } else {
      EXPECT_EQ(part.size(), 3);
      EXPECT_EQ(part.rank(), 2 - comm.rank() / 2);  // by descending rank
      std::vector<std::int32_t> x = {comm.rank()};
      part.all_reduce(view(x), ReduceOp::sum);
      EXPECT_EQ(x[0], comm.rank() % 2 == 0 ? 6 : 9);
    }
    if (comm.rank() == 2 || comm.rank() == 5) {
      const std::vector<int> pair = {5, 2};
      const Counters before = comm.counters();
      Communicator two = comm.group(pair);
      EXPECT_EQ(two.rank(), comm.rank() == 5 ? 0 : 1);
      std::vector<std::int32_t> x = {comm.rank()};
      two.all_reduce(view(x), ReduceOp::product);
      EXPECT_EQ(x[0], 10);
      EXPECT_EQ(comm.counters().messages_sent, before.messages_sent);
    }
    comm.barrier();
  });
}

TEST(Communicator, BooleansBecomeZeroOrOneInEveryWorld) {
  for (std::uint32_t size : {1u, 2u, 3u})
    in_threads(size, [](Communicator& comm) {
      std::vector<std::uint8_t> bytes = {0, 1, 2, 255}, out(4);
      const View result{out.data(), 4, DType::boolean};
      for (ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum, ReduceOp::bit_and}) {
        comm.all_reduce(ConstView(bytes.data(), 4, DType::boolean), result, op);
        EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 1, 1, 1}));
      }
    });
}

TEST(Communicator, ShortFormsDoTheSame) {
  in_threads(3, [](Communicator& comm) {
    const std::vector<std::size_t> counts = {2, 0, 3};
    std::vector<std::int32_t> mine(counts[static_cast<std::size_t>(comm.rank())], comm.rank() + 1), all(5),
        back(mine.size());
    comm.gather(view(std::as_const(mine)), view(all), counts, 1);
    EXPECT_EQ(all, comm.rank() == 1 ? (std::vector<std::int32_t>{1, 1, 3, 3, 3}) : std::vector<std::int32_t>(5));
    comm.scatter(view(std::as_const(all)), view(back), counts, 1);
    EXPECT_EQ(back, mine);
    std::vector<std::int32_t> one = {comm.rank()}, three(3);
    comm.all_gather_async(view(std::as_const(one)), view(three)).wait();
    EXPECT_EQ(three, (std::vector<std::int32_t>{0, 1, 2}));
    comm.all_reduce_async(view(three), ReduceOp::sum).wait();
    EXPECT_EQ(three, (std::vector<std::int32_t>{0, 3, 6}));
    comm.reduce_scatter_async(view(std::as_const(three)), view(one), ReduceOp::sum).wait();
    EXPECT_EQ(one[0], 9 * comm.rank());
    Communicator everyone = comm.group({2, 1, 0});
    EXPECT_EQ(everyone.rank(), 2 - comm.rank());
    everyone.barrier();
  });
}

TEST(Communicator, TunedGroupsStillAgreeOnEveryChoice) {
  for (std::uint32_t size : {1u, 2u, 3u})
    in_threads(size, [](Communicator& comm) {
      comm.tune();
      for (std::size_t count : kCounts) {
        std::vector<std::int32_t> data = values(comm.rank(), count);
        comm.all_reduce(view(data), ReduceOp::sum);
        for (std::size_t i = 0; i < count; i += 97) EXPECT_EQ(data[i], sum_at(comm.size(), i));
      }
    });
}

TEST(Communicator, AMismatchIsAnErrorOnEveryRankAndNamesBothCalls) {
  std::atomic<int> named{0};
  in_threads(3, [&](Communicator& comm) {
    std::vector<float> x(comm.rank() == 1 ? 101 : 100, 1.0f);
    try {
      comm.all_reduce(view(x), ReduceOp::sum);
      comm.barrier();
      ADD_FAILURE() << "rank " << comm.rank() << " saw nothing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
      const std::string what = error.what();
      if (what.find("100 f32") != std::string::npos && what.find("101 f32") != std::string::npos) ++named;
    }
    EXPECT_THROW(comm.barrier(), Error);
  });
  EXPECT_EQ(named, 3);
}

TEST(Communicator, AWaitEndsAtItsDeadlineAndNamesTheMissingRank) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  std::vector<float> x(10);
  try {
    ranks[0].all_reduce(view(x), ReduceOp::sum, {.timeout = 50ms});
    FAIL() << "nobody answered, yet it ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    EXPECT_EQ(error.peer(), 1) << error.what();
  }
}

TEST(Communicator, AbortReachesBlockedCallsHereAndThere) {
  std::vector<Communicator> ranks = Communicator::threads(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      std::vector<float> x(10);
      try {
        ranks[static_cast<std::size_t>(r)].all_reduce(view(x), ReduceOp::sum, {.timeout = 60s});
        ADD_FAILURE();
      } catch (const Error& error) { EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what(); }
    });
  ranks[1].abort("enough");
  ranks[1].abort("twice");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ranks[2].status().code, ErrorCode::aborted);
  ranks[1].destroy();
  ranks[1].destroy();
  EXPECT_THROW(ranks[1].barrier(), Error);
}

TEST(Communicator, BadArgumentsAreRefusedAndHarmNothing) {
  in_threads(2, [](Communicator& comm) {
    std::vector<float> x(10), y(9);
    std::vector<double> d(10);
    const auto refused = [&](auto&& call, const std::string& part) {
      try {
        call();
        ADD_FAILURE() << "expected: " << part;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    };
    refused([&] { comm.all_reduce(view(std::as_const(x)), view(y), ReduceOp::sum); },
            "the output holds 9 elements, expected 10");
    refused([&] { comm.all_reduce(view(std::as_const(x)), view(d), ReduceOp::sum); },
            "the input is f32, the output is f64");
    refused([&] { comm.all_reduce(view(x), ReduceOp::bit_xor); }, "bit_xor of f32 is not defined");
    refused([&] { comm.broadcast(view(x), 2); }, "the root is rank 2, but the world has ranks 0 to 1");
    refused([&] { comm.send(view(std::as_const(x)), comm.rank()); }, "itself");
    refused([&] { comm.recv(view(x), 7); }, "the peer is rank 7, but the world has ranks 0 to 1");
    refused([&] { comm.all_reduce(View{nullptr, 3, DType::f32}, ReduceOp::sum); }, "null");
    refused(
        [&] {
          comm.all_reduce(ConstView(x.data(), 5, DType::f32), View{x.data() + 1, 5, DType::f32}, ReduceOp::sum);
        },
        "overlap by 16 bytes");
    refused([&] { comm.all_gather(view(std::as_const(x)), view(y)); }, "the output holds 9 elements, expected 20");
    refused([&] { comm.all_reduce(view(x), ReduceOp::sum, {.algorithm = Algorithm::direct}); }, "direct");
    comm.all_reduce(view(x), ReduceOp::sum);
  });
}

// What the call throws; a call that throws nothing is the test's failure.
Status thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) { return error.status(); }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(Communicator, CountsWhoseSumWrapsAreRefused) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  in_threads(3, [](Communicator& comm) {
    std::vector<float> x(32), y(32);
    const auto input = [&](std::size_t n) { return ConstView(x.data(), n, DType::f32); };
    const auto output = [&](std::size_t n) { return View{y.data(), n, DType::f32}; };
    const auto refused = [](const std::function<void()>& call, const std::string& part) {
      const Status status = thrown_by(call);
      EXPECT_EQ(status.code, ErrorCode::invalid_argument) << status.message;
      EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
    };
    const std::vector<std::size_t> wraps = {kMost, 0, 2}, ones = {0, 1, 0}, late = {kMost - 30, 0, 32};
    refused([&] { comm.all_to_all(input(1), output(1), wraps, wraps); }, "18446744073709551615 f32 for rank 0");
    refused([&] { comm.all_to_all(input(1), output(1), ones, wraps); }, "18446744073709551615 f32 for rank 0");
    refused(
        [&] {
          comm.reduce_scatter(input(1), output(late[static_cast<std::size_t>(comm.rank())] % 33), late, ReduceOp::sum);
        },
        "for rank 0 is beyond the limit of 70368744177664 bytes");
    const std::size_t half = limits::message_bytes_max / sizeof(float) / 2;
    const std::vector<std::size_t> too_many = {half, half, 1};
    refused([&] { comm.all_gather(input(1), output(1), too_many); },
            "ranks 0 to 2 add up to 17592186044417 f32, beyond the limit");
    refused([&] { comm.all_gather(input(half), output(1)); }, "3 blocks of 8796093022208 f32 are beyond the limit");
    std::vector<float> sum = {1.0f};
    comm.all_reduce(view(sum), ReduceOp::sum);
    EXPECT_EQ(sum[0], 3.0f);
  });
}

TEST(Communicator, NothingIsMadeOfADestroyedOrFailedCommunicator) {
  std::vector<Communicator> ranks = Communicator::threads(2), single = Communicator::threads(1);
  const std::vector<int> self = {0}, peer = {1};
  single[0].destroy();
  ranks[1].abort("enough");
  const auto code = [](const std::function<void()>& call) { return thrown_by(call).code; };
  EXPECT_EQ(code([&] { single[0].group(self); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { single[0].allocate(4096); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { single[0].tune(); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { single[0].split(0); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { single[0].barrier(); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { single[0].abort(); }), ErrorCode::closed);
  EXPECT_EQ(code([&] { ranks[1].group(peer); }), ErrorCode::aborted);
  EXPECT_EQ(code([&] { ranks[1].allocate(4096); }), ErrorCode::aborted);
  EXPECT_EQ(code([&] { ranks[0].group(self); }), ErrorCode::aborted) << "the peer's notice was not looked for";
  EXPECT_EQ(single[0].rank(), 0);
  EXPECT_EQ(single[0].size(), 1);
  EXPECT_EQ(single[0].hosts().size(), 1u);
  EXPECT_EQ(single[0].describe(0), "rank 0 (thread)");
  EXPECT_EQ(single[0].counters().operations, 0u);
  EXPECT_EQ(single[0].status().code, ErrorCode::closed);
  single[0].destroy();
}

TEST(Communicator, WhatIsRefusedLeavesTheCommunicatorAsItWas) {
  in_threads(2, [](Communicator& comm) {
    std::vector<float> x(10, 1.0f);
    const auto reduce = [&](ReduceOp op, const CallOptions& options) {
      return thrown_by([&] { comm.all_reduce(view(x), op, options); });
    };
    for (Algorithm algorithm : {Algorithm::automatic, Algorithm::ring, Algorithm::tree}) {
      const Status status = reduce(ReduceOp::sum, {.algorithm = algorithm, .segments = 65});
      EXPECT_EQ(status.code, ErrorCode::invalid_argument);
      EXPECT_EQ(status.message,
                "all_reduce: 65 segments were asked for, allowed are 1 to 64, or 0 to have them chosen");
    }
    EXPECT_EQ(reduce(ReduceOp::bit_and, {}).code, ErrorCode::unsupported);
    EXPECT_TRUE(comm.status().ok());
    comm.all_reduce(view(x), ReduceOp::sum, {.algorithm = Algorithm::tree, .segments = 64});
    EXPECT_EQ(x[9], 2.0f);
  });
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GRADSYNC_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GRADSYNC_SANITIZED 1
#endif
#endif

// While it lives, the process can take hardly more address space than it has.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    rlimit less = before_;
    less.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (256u << 20);
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &less), 0);
  }
  ~NoMoreMemory() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }

 private:
  rlimit before_{};
};

TEST(Communicator, AnExchangeInPlaceWithoutMemoryIsRefused) {
#ifdef GRADSYNC_SANITIZED
  GTEST_SKIP() << "sanitizers end the process where memory ends";
#endif
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  void* data = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  in_threads(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      const View whole{data, kBytes, DType::u8};
      const NoMoreMemory scarce;
      const Status status = thrown_by([&] { comm.all_to_all(whole, whole); });
      EXPECT_EQ(status.code, ErrorCode::out_of_memory) << status.message;
      EXPECT_NE(status.message.find("1073741824 bytes"), std::string::npos) << status.message;
    }
    std::vector<std::int32_t> place = {comm.rank() * 2, comm.rank() * 2 + 1};
    comm.all_to_all(view(std::as_const(place)), view(place));
    EXPECT_EQ(place, (std::vector<std::int32_t>{comm.rank(), 2 + comm.rank()}));
  });
  ::munmap(data, kBytes);
}

TEST(Communicator, AsynchronousCallsBeyondTheLimitAreRefusedAndTakeNoNumber) {
  Options options;
  options.timeout = 60s;
  std::vector<Communicator> ranks = Communicator::threads(2, options);
  Work first = ranks[0].barrier_async();
  for (std::size_t i = 1; i < limits::operations_in_flight_max; ++i) ranks[0].barrier_async();
  const Status status = thrown_by([&] { ranks[0].barrier_async(); });
  EXPECT_EQ(status.code, ErrorCode::out_of_range);
  EXPECT_EQ(status.message, "barrier: 65536 operations are under way, the limit is 65536");
  EXPECT_TRUE(ranks[0].status().ok());
  ranks[1].barrier();
  first.wait();
  EXPECT_EQ(ranks[0].barrier_async().sequence(), limits::operations_in_flight_max + 1);
  EXPECT_THROW(ranks[0].barrier_async(), Error);
}

TEST(Communicator, ProcessesDoNotMeetOverLoopback) {
  Options options;
  options.rank = 0;
  options.size = 2;
  options.rendezvous = "tcp://127.0.0.1:1/nobody";
  options.start_timeout = 1s;
  options.transport = TransportKind::loopback;
  const Status status = thrown_by([&] { Communicator::create(options); });
  EXPECT_EQ(status.code, ErrorCode::invalid_argument);
  EXPECT_EQ(status.message,
            "the transport is loopback, which is for threads of one process; processes use auto, shm or tcp");
}

TEST(Communicator, TimeoutsAreNotNegativeAndThoseOfCallsAreAboveZero) {
  const auto refused = [](const std::function<void()>& call, const std::string& message) {
    const Status status = thrown_by(call);
    EXPECT_EQ(status.code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.message, message);
  };
  Options bad, bad_start;
  bad.timeout = -5s;
  bad_start.start_timeout = -1500ms;
  const std::string expected = " s, expected seconds above 0, or 0 for the default";
  refused([&] { Communicator::threads(1, bad); }, "timeout is -5" + expected);
  refused([&] { Communicator::create(bad); }, "timeout is -5" + expected);
  refused([&] { Communicator::create(bad_start); }, "start_timeout is -1.5" + expected);
  std::vector<Communicator> ranks = Communicator::threads(2);
  refused([&] { ranks[0].barrier({.timeout = -5ms}); }, "barrier: the timeout is -0.005 s, expected more than 0");
  refused([&] { ranks[0].barrier_async({.timeout = 0s}); }, "barrier: the timeout is 0 s, expected more than 0");
  EXPECT_TRUE(ranks[0].status().ok());
}

}  // namespace
}  // namespace gradsync
