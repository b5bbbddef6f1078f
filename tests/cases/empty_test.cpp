// V1: nothing to do is done well, and does not shift the calls after it.
#include <gtest/gtest.h>

#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

// Fails if the ranks are no longer at the same call.
void expect_in_step(Communicator& comm) {
  std::int32_t one = comm.rank() + 1;
  comm.all_reduce(View{&one, 1, DType::i32}, ReduceOp::sum);
  EXPECT_EQ(one, comm.size() * (comm.size() + 1) / 2);
}

void expect_empty_calls_succeed(Communicator& comm, DType dtype) {
  const ConstView nothing(nullptr, 0, dtype);
  const View none{nullptr, 0, dtype};
  for (ReduceOp op : kAllOps) {
    if (!supports(dtype, op)) continue;
    comm.all_reduce(nothing, none, op);
    comm.all_reduce(none, op);
    comm.reduce_scatter(nothing, none, op);
    comm.reduce(nothing, none, op, comm.size() - 1);
    expect_in_step(comm);
  }
  comm.all_gather(nothing, none);
  comm.broadcast(none, 0);
  comm.gather(nothing, none, 0);
  comm.scatter(nothing, none, comm.size() - 1);
  comm.all_to_all(nothing, none);
  expect_in_step(comm);
}

TEST(CaseV1, NullOfCountZeroSucceedsForEveryTypeAndOperatorAndTheNextCallIsInStep) {
  for (Medium medium : kMedia)
    for (std::uint32_t size : {1u, 2u, 3u})
      in_world({.size = size, .medium = medium}, [](Communicator& comm) {
        for (DType dtype : kAllDTypes) expect_empty_calls_succeed(comm, dtype);
      });
}

TEST(CaseV1, CountZeroLeavesTheOutputUntouchedByEveryAlgorithm) {
  for (Medium medium : kMedia)
    in_world({.size = 5, .medium = medium}, [](Communicator& comm) {
      std::vector<float> in(8, 1.0f), out(8, -7.0f);
      const std::vector<float> before = out;
      const ConstView nothing(in.data(), 0, DType::f32);
      const View none{out.data(), 0, DType::f32};
      for (Algorithm a : algorithms_of(Collective::all_reduce))
        comm.all_reduce(nothing, none, ReduceOp::avg, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::reduce_scatter))
        comm.reduce_scatter(nothing, none, ReduceOp::sum, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::all_gather)) comm.all_gather(nothing, none, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::broadcast)) comm.broadcast(none, 3, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::reduce))
        comm.reduce(nothing, none, ReduceOp::min, 2, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::gather)) comm.gather(nothing, none, 1, {.algorithm = a});
      for (Algorithm a : algorithms_of(Collective::scatter)) comm.scatter(nothing, none, 4, {.algorithm = a});
      EXPECT_EQ(out, before);
      expect_in_step(comm);
    });
}

// Blocks of ranks 0, 2, 4 are empty, the others hold rank + 1 elements.
std::vector<std::size_t> some_empty(int size) {
  std::vector<std::size_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r % 2 == 0 ? 0 : static_cast<std::size_t>(r) + 1);
  return counts;
}

TEST(CaseV1, BlocksThatOnlySomeRanksLeaveEmptyAreGatheredAndScattered) {
  for (Medium medium : kMedia)
    in_world({.size = 5, .medium = medium}, [](Communicator& comm) {
      const std::vector<std::size_t> counts = some_empty(comm.size());
      const auto mine = counts[static_cast<std::size_t>(comm.rank())];
      const std::vector<std::int32_t> expected = {1, 1, 3, 3, 3, 3};
      for (Algorithm algorithm : algorithms_of(Collective::all_gather)) {
        std::vector<std::int32_t> in(mine, comm.rank()), out(6, -1);
        comm.all_gather(ConstView(mine == 0 ? nullptr : in.data(), mine, DType::i32), view(out), counts,
                        {.algorithm = algorithm});
        EXPECT_EQ(out, expected);
        expect_in_step(comm);
      }
      for (Algorithm algorithm : algorithms_of(Collective::reduce_scatter)) {
        std::vector<std::int32_t> in(6, comm.rank()), out(mine, -1);
        comm.reduce_scatter(view(std::as_const(in)), View{mine == 0 ? nullptr : out.data(), mine, DType::i32}, counts,
                            ReduceOp::sum, {.algorithm = algorithm});
        EXPECT_EQ(out, std::vector<std::int32_t>(mine, 10));
        expect_in_step(comm);
      }
    });
}

TEST(CaseV1, AnExchangeInWhichSomeRanksSendNothing) {
  for (Medium medium : kMedia)
    in_world({.size = 4, .medium = medium}, [](Communicator& comm) {
      const auto me = static_cast<std::size_t>(comm.rank());
      // Even ranks send nothing at all, odd rank r sends p elements of value 10 r + p to rank p.
      std::vector<std::size_t> sent(4, 0), got(4, 0);
      std::vector<std::int32_t> out_blocks, expected;
      for (std::size_t p = 0; p < 4; ++p) {
        if (me % 2 == 1) sent[p] = p;
        if (p % 2 == 1) got[p] = me;
        out_blocks.insert(out_blocks.end(), sent[p], static_cast<std::int32_t>(10 * me + p));
        expected.insert(expected.end(), got[p], static_cast<std::int32_t>(10 * p + me));
      }
      std::vector<std::int32_t> received(expected.size(), -1);
      const ConstView input(out_blocks.empty() ? nullptr : out_blocks.data(), out_blocks.size(), DType::i32);
      comm.all_to_all(input, view(received), sent, got);
      EXPECT_EQ(received, expected);
      expect_in_step(comm);
      const std::vector<std::size_t> zeros(4, 0);
      comm.all_to_all(ConstView(nullptr, 0, DType::i32), View{nullptr, 0, DType::i32}, zeros, zeros);
      expect_in_step(comm);
    });
}

}  // namespace
}  // namespace gradsync::cases
