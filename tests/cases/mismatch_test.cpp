// M1, M2: ranks that call different things learn so, all of them, within 1 s, in words that name who called what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <mutex>
#include <thread>

#include "world.hpp"

namespace gradsync::cases {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

constexpr std::chrono::milliseconds kPromise = 1s;  // from the moment when the last rank has called

// One way to disagree: what the odd rank calls and what the others call.
struct Difference {
  const char* name;
  std::function<void(Communicator&)> odd, others;
  std::vector<std::string> words;  // of both calls, in every rank's message
};

void all_reduce(Communicator& comm, std::size_t count, ReduceOp op = ReduceOp::sum,
                Algorithm algorithm = Algorithm::automatic, std::uint32_t segments = 0) {
  std::vector<float> data(count, 1.0f);
  comm.all_reduce(view(data), op, {.algorithm = algorithm, .segments = segments});
}
template <class T>
void all_reduce_of(Communicator& comm, std::size_t count) {
  std::vector<T> data(count, T{1});
  comm.all_reduce(view(data), ReduceOp::sum);
}
void broadcast(Communicator& comm, int root, std::size_t count = 50) {
  std::vector<float> data(count, 1.0f);
  comm.broadcast(view(data), root);
}
void reduce(Communicator& comm, int root) {
  std::vector<float> data(50, 1.0f), out(50);
  comm.reduce(view(std::as_const(data)), view(out), ReduceOp::sum, root);
}
void all_gather(Communicator& comm, std::size_t block) {
  std::vector<float> data(block, 1.0f), out(block * static_cast<std::size_t>(comm.size()));
  comm.all_gather(view(std::as_const(data)), view(out));
}
void reduce_scatter(Communicator& comm, std::size_t block) {
  std::vector<float> out(block, 1.0f), data(block * static_cast<std::size_t>(comm.size()));
  comm.reduce_scatter(view(std::as_const(data)), view(out), ReduceOp::sum);
}
// As reduce_scatter with counts, of which the first two are exchanged if asked for.
void reduce_scatter_uneven(Communicator& comm, bool exchanged) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), 30);
  counts[exchanged ? 1 : 0] = 40;
  std::vector<float> out(counts[static_cast<std::size_t>(comm.rank())]), data(30 * counts.size() + 10, 1.0f);
  comm.reduce_scatter(view(std::as_const(data)), view(out), counts, ReduceOp::sum);
}

using C = Communicator;
const std::vector<Difference> kCounts = {
    {"counts far apart",
     [](C& c) { all_reduce(c, 262144); },
     [](C& c) { all_reduce(c, 1025); },
     {"262144 f32", "1025 f32"}},
    {"counts one apart", [](C& c) { all_reduce(c, 101); }, [](C& c) { all_reduce(c, 100); }, {"101 f32", "100 f32"}},
    {"counts of equal chunk numbers",
     [](C& c) { all_reduce(c, 262147); },
     [](C& c) { all_reduce(c, 262144); },
     {"262147 f32", "262144 f32"}},
    {"none against some", [](C& c) { all_reduce(c, 0); }, [](C& c) { all_reduce(c, 5); }, {"0 f32", "5 f32"}},
    {"blocks", [](C& c) { all_gather(c, 33); }, [](C& c) { all_gather(c, 32); }, {"33 f32", "32 f32"}},
    {"block sizes of equal sum",
     [](C& c) { reduce_scatter_uneven(c, true); },
     [](C& c) { reduce_scatter_uneven(c, false); },
     {"uneven blocks"}},
    {"counts of a broadcast",
     [](C& c) { broadcast(c, 0, 70); },
     [](C& c) { broadcast(c, 0, 71); },
     {"70 f32", "71 f32"}},
};
const std::vector<Difference> kCalls = {
    {"element type",
     [](C& c) { all_reduce_of<std::int32_t>(c, 64); },
     [](C& c) { all_reduce_of<float>(c, 64); },
     {"64 i32", "64 f32"}},
    {"operator",
     [](C& c) { all_reduce(c, 64, ReduceOp::max); },
     [](C& c) { all_reduce(c, 64); },
     {"f32, max", "f32, sum"}},
    {"root of a reduction", [](C& c) { reduce(c, 1); }, [](C& c) { reduce(c, 0); }, {"root 1", "root 0"}},
    {"collective",
     [](C& c) { all_gather(c, 64); },
     [](C& c) { reduce_scatter(c, 64); },
     {"all_gather of 64", "reduce_scatter of 64"}},
    {"barrier against a reduction",
     [](C& c) { c.barrier(); },
     [](C& c) { all_reduce(c, 64); },
     {"barrier", "all_reduce of 64"}},
    {"algorithm",
     [](C& c) { all_reduce(c, 64, ReduceOp::sum, Algorithm::circulant); },
     [](C& c) { all_reduce(c, 64, ReduceOp::sum, Algorithm::ring); },
     {"by circulant", "by ring"}},
    {"segments",
     [](C& c) { all_reduce(c, 64, ReduceOp::sum, Algorithm::tree, 4); },
     [](C& c) { all_reduce(c, 64, ReduceOp::sum, Algorithm::tree, 2); },
     {"in 4 segments", "in 2 segments"}},
    {"order",
     [](C& c) { all_reduce(c, 20), all_reduce(c, 10); },
     [](C& c) { all_reduce(c, 10), all_reduce(c, 20); },
     {"of 20 f32", "of 10 f32"}},
    {"one call skipped",
     [](C& c) { all_reduce(c, 10), all_reduce(c, 30); },
     [](C& c) { all_reduce(c, 10), all_reduce(c, 20), all_reduce(c, 30); },
     {"#2 (all_reduce of 30 f32", "#2 (all_reduce of 20 f32"}},
};

// What became of one rank: the error that it saw and when.
struct Seen {
  Time called, told;
  Status status;
};

// Calls, and where the call ends well, asks status() and at last makes the next call.
Seen call_and_be_told(Communicator& comm, const std::function<void(Communicator&)>& call) {
  Seen seen;
  seen.called = std::chrono::steady_clock::now();
  try {
    call(comm);
    const Time until = std::chrono::steady_clock::now() + kPromise / 2;
    while (comm.status().ok() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    seen.status = comm.status();
    if (seen.status.ok()) comm.barrier();
  } catch (const Error& error) { seen.status = error.status(); }
  seen.told = std::chrono::steady_clock::now();
  return seen;
}

void expect_all_are_told(const World& world, const Difference& difference, int odd) {
  SCOPED_TRACE(std::string(difference.name) + ", rank " + std::to_string(odd) + " differs, " + describe(world));
  std::vector<Communicator> ranks = open(world);
  std::vector<Seen> seen(world.size);
  std::barrier together(static_cast<std::ptrdiff_t>(world.size));
  on_ranks(ranks, [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    together.arrive_and_wait();
    seen[me] = call_and_be_told(comm, comm.rank() == odd ? difference.odd : difference.others);
    EXPECT_FALSE(comm.status().ok());
    EXPECT_THROW(comm.barrier(), Error);  // and so does every later call
    together.arrive_and_wait();           // nobody leaves before all were told
  });
  Time last_called = seen[0].called;
  for (const Seen& one : seen) last_called = std::max(last_called, one.called);
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank) + ": " + seen[rank].status.message);
    EXPECT_EQ(seen[rank].status.code, ErrorCode::mismatch);
    EXPECT_LT(seen[rank].told - last_called, kPromise);
    EXPECT_THAT(seen[rank].status.message, HasSubstr("rank " + std::to_string(odd) + " called"));
    for (const std::string& words : difference.words) EXPECT_THAT(seen[rank].status.message, HasSubstr(words));
  }
}

void expect_all_are_told_everywhere(Medium medium, const std::vector<Difference>& differences) {
  for (const Difference& difference : differences)
    for (std::uint32_t size : {2u, 3u, 5u})
      for (int odd : {0, static_cast<int>(size) - 1})
        expect_all_are_told({.size = size, .medium = medium}, difference, odd);
}

class CaseM1 : public testing::TestWithParam<Medium> {};
class CaseM2 : public testing::TestWithParam<Medium> {};

TEST_P(CaseM1, DifferentCountsAreAnErrorOnEveryRankWithinASecondNamingBoth) {
  expect_all_are_told_everywhere(GetParam(), kCounts);
}
TEST_P(CaseM2, DifferentCallsAreAnErrorOnEveryRankWithinASecondNamingBoth) {
  expect_all_are_told_everywhere(GetParam(), kCalls);
}

// Every rank takes itself for the root, or nobody does: what each of them waits for never comes.
TEST_P(CaseM2, DifferentRootsOfABroadcastAreAnErrorAlsoWhereEveryRankOnlySends) {
  for (std::uint32_t size : {2u, 3u, 5u}) {
    const int last = static_cast<int>(size) - 1;
    const Difference both_send{
        "all send", [=](C& c) { broadcast(c, last); }, [](C& c) { broadcast(c, 0); }, {"broadcast"}};
    expect_all_are_told({.size = size, .medium = GetParam()}, both_send, last);
    const Difference none_sends{"the odd rank and its root wait for each other",
                                [=](C& c) { broadcast(c, last); },
                                [](C& c) { broadcast(c, 0); },
                                {"root 0", "root " + std::to_string(last)}};
    if (size > 2) expect_all_are_told({.size = size, .medium = GetParam()}, none_sends, 0);
  }
}

TEST_P(CaseM2, ARankThatSkipsTheLastOfEqualCallsIsWaitedForUntilTheDeadline) {
  for (std::uint32_t size : {2u, 3u}) {
    std::vector<Communicator> ranks = open({.size = size, .medium = GetParam(), .timeout = 300ms});
    on_ranks(ranks, [&](Communicator& comm) {
      try {
        for (int call = 0; call < (comm.rank() == 1 ? 2 : 3); ++call)
          all_reduce(comm, 16, ReduceOp::sum, Algorithm::ring);
        EXPECT_EQ(comm.rank(), 1);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("all_reduce #3"));
        // Of three, the rank that is waited for may itself wait for the one that is missing.
        EXPECT_TRUE(size == 2 ? error.peer() == 1 : error.peer() > 0) << error.what();
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, CaseM1, testing::ValuesIn(kMedia),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });
INSTANTIATE_TEST_SUITE_P(, CaseM2, testing::ValuesIn(kMedia),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace gradsync::cases
