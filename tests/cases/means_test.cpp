// V6, V8, V9, V10: what reductions mean at the edges of their types, and pairs that have no meaning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using testing::HasSubstr;

// All-reduces `count` elements of equal bits on every rank.
template <class T>
std::vector<T> reduced(Communicator& comm, DType dtype, ReduceOp op, T mine, Algorithm algorithm,
                       std::size_t count = 37) {
  std::vector<T> data(count, mine);
  comm.all_reduce(View{data.data(), count, dtype}, op, {.algorithm = algorithm});
  return data;
}

TEST(CaseV6, AnAverageOfF16NeitherOverflowsNorFlushesSubnormals) {
  for (Medium medium : {Medium::loopback, Medium::shm})
    for (std::uint32_t size : {4u, 8u})
      in_world({.size = size, .medium = medium}, [](Communicator& comm) {
        for (Algorithm a : algorithms_of(Collective::all_reduce))
          for (double value : {40000.0, 65504.0, -40000.0, 6e-8, 5.9604644775390625e-8 * 3}) {
            const std::uint16_t bits = half_bits(DType::f16, value);
            ASSERT_NE(bits & 0x7fff, 0);
            EXPECT_EQ(reduced(comm, DType::f16, ReduceOp::avg, bits, a), std::vector<std::uint16_t>(37, bits))
                << value << " by " << gradsync::name_of(a);
          }
      });
}

TEST(CaseV8, MaximaOfNegativesMinimaAndTheEdgesOfBytes) {
  for (Medium medium : kMedia)
    in_world({.size = 4, .medium = medium}, [](Communicator& comm) {
      const int r = comm.rank();
      for (Algorithm a : algorithms_of(Collective::all_reduce)) {
        SCOPED_TRACE(std::string(gradsync::name_of(a)));
        for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8, DType::i32, DType::i64}) {
          Bytes data(37 * size_of(dtype));
          for (std::size_t i = 0; i < 37; ++i) put(dtype, data.data(), i, -1.0 - (r + static_cast<int>(i)) % 4);
          comm.all_reduce(View{data.data(), 37, dtype}, ReduceOp::max, {.algorithm = a});
          for (std::size_t i = 0; i < 37; ++i) EXPECT_EQ(get(dtype, data.data(), i), -1.0) << gradsync::name_of(dtype);
          for (std::size_t i = 0; i < 37; ++i) put(dtype, data.data(), i, r == 2 ? -1.0 : 0.0);
          comm.all_reduce(View{data.data(), 37, dtype}, ReduceOp::min, {.algorithm = a});
          for (std::size_t i = 0; i < 37; ++i) EXPECT_EQ(get(dtype, data.data(), i), -1.0) << gradsync::name_of(dtype);
        }
        const auto byte = static_cast<std::uint8_t>(r == 1 ? 200 : 100);
        EXPECT_EQ(reduced(comm, DType::u8, ReduceOp::max, byte, a), std::vector<std::uint8_t>(37, 200));
        EXPECT_EQ(reduced(comm, DType::u8, ReduceOp::min, byte, a), std::vector<std::uint8_t>(37, 100));
        const auto least = static_cast<std::int8_t>(r == 3 ? -128 : 127);
        EXPECT_EQ(reduced(comm, DType::i8, ReduceOp::min, least, a), std::vector<std::int8_t>(37, -128));
        EXPECT_EQ(reduced(comm, DType::i8, ReduceOp::max, least, a), std::vector<std::int8_t>(37, 127));
        EXPECT_EQ(reduced(comm, DType::i8, ReduceOp::avg, std::int8_t{-128}, a), std::vector<std::int8_t>(37, -128));
      }
    });
}

// The mean of 0 … size - 1 as the type can say it.
double mean_of_ranks(DType dtype, int size) {
  const double exact = (size - 1) / 2.0;
  return is_integer(dtype) ? std::trunc(exact) : exact;
}

TEST(CaseV9, TheMeanOfTheRanksIsTheSameOnEveryPath) {
  for (Medium medium : kMedia)
    for (std::uint32_t size : {1u, 2u, 3u, 6u})
      in_world({.size = size, .medium = medium}, [](Communicator& comm) {
        for (DType dtype : kAllDTypes) {
          if (dtype == DType::boolean) continue;
          SCOPED_TRACE(std::string(gradsync::name_of(dtype)));
          constexpr std::size_t kBlock = 5;
          const std::size_t all = kBlock * static_cast<std::size_t>(comm.size());
          const double mean = mean_of_ranks(dtype, comm.size());
          Bytes in(all * size_of(dtype)), out(in.size());
          for (std::size_t i = 0; i < all; ++i) put(dtype, in.data(), i, comm.rank());
          const ConstView input(in.data(), all, dtype);
          const auto expect_mean = [&](std::size_t count, const char* path, Algorithm a) {
            for (std::size_t i = 0; i < count; ++i)
              EXPECT_EQ(get(dtype, out.data(), i), mean) << path << " by " << gradsync::name_of(a);
          };
          for (Algorithm a : algorithms_of(Collective::all_reduce)) {
            comm.all_reduce(input, View{out.data(), all, dtype}, ReduceOp::avg, {.algorithm = a});
            expect_mean(all, "all_reduce", a);
          }
          for (Algorithm a : algorithms_of(Collective::reduce_scatter)) {
            comm.reduce_scatter(input, View{out.data(), kBlock, dtype}, ReduceOp::avg, {.algorithm = a});
            expect_mean(kBlock, "reduce_scatter", a);
          }
          const std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), kBlock);
          comm.reduce_scatter(input, View{out.data(), kBlock, dtype}, counts, ReduceOp::avg);
          expect_mean(kBlock, "reduce_scatter of given counts", Algorithm::automatic);
          for (Algorithm a : algorithms_of(Collective::reduce)) {
            const int root = comm.size() - 1;
            comm.reduce(input, View{out.data(), all, dtype}, ReduceOp::avg, root, {.algorithm = a});
            if (comm.rank() == root) { expect_mean(all, "reduce", a); }
          }
        }
      });
}

TEST(CaseV9, ANegativeMeanOfIntegersIsTruncatedTowardZeroOnEveryPath) {
  in_world({.size = 2}, [](Communicator& comm) {
    for (DType dtype : {DType::i8, DType::i32, DType::i64}) {  // -(0 + 3) / 2 = -1.5
      Bytes in(2 * size_of(dtype)), out(in.size());
      for (std::size_t i = 0; i < 2; ++i) put(dtype, in.data(), i, comm.rank() == 0 ? 0 : -3);
      comm.all_reduce(ConstView(in.data(), 2, dtype), View{out.data(), 2, dtype}, ReduceOp::avg);
      EXPECT_EQ(get(dtype, out.data(), 1), -1);
      comm.reduce_scatter(ConstView(in.data(), 2, dtype), View{out.data(), 1, dtype}, ReduceOp::avg);
      EXPECT_EQ(get(dtype, out.data(), 0), -1);
      comm.reduce(ConstView(in.data(), 2, dtype), View{out.data(), 2, dtype}, ReduceOp::avg, 0);
      if (comm.rank() == 0) { EXPECT_EQ(get(dtype, out.data(), 1), -1); }
    }
  });
}

// What a call throws; fails the test if it does not.
template <class Call>
Status thrown_by(Call&& call) {
  try {
    call();
  } catch (const Error& error) { return error.status(); }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(CaseV10, APairWithoutMeaningIsRefusedOnEveryRankByTypeAndOperatorBeforeAByteMoves) {
  for (Medium medium : kMedia)
    in_world({.size = 3, .medium = medium}, [](Communicator& comm) {
      Bytes data(3 * 8);
      int refused = 0;
      const Counters before = comm.counters();
      for (DType dtype : kAllDTypes)
        for (ReduceOp op : kAllOps) {
          if (supports(dtype, op)) continue;
          ++refused;
          const View whole{data.data(), 3, dtype}, one{data.data(), 1, dtype};
          for (const Status& status :
               {thrown_by([&] { comm.all_reduce(whole, op); }), thrown_by([&] { comm.reduce_scatter(whole, one, op); }),
                thrown_by([&] { comm.reduce(whole, whole, op, 0); }),
                thrown_by([&] { comm.all_reduce_async(whole, whole, op); })}) {
            EXPECT_EQ(status.code, ErrorCode::unsupported);
            EXPECT_THAT(status.message,
                        HasSubstr(std::string(gradsync::name_of(op)) + " of " + std::string(gradsync::name_of(dtype))));
          }
        }
      EXPECT_EQ(refused, 4 * 3 + 1);  // bitwise of the four float types, avg of bool
      EXPECT_EQ(comm.counters().messages_sent, before.messages_sent);
      comm.barrier();  // the communicator is unharmed
    });
}

TEST(CaseV10, AnElementTypeOrOperatorOutOfRangeIsRefusedByNumberWithTheKnownOnes) {
  in_world({.size = 2, .medium = Medium::shm}, [](Communicator& comm) {
    Bytes data(64);
    for (int number : {11, 12, 77, 255}) {
      const View strange{data.data(), 4, static_cast<DType>(number)};
      for (const Status& status : {thrown_by([&] { comm.all_reduce(strange, ReduceOp::sum); }),
                                   thrown_by([&] { comm.broadcast(strange, 0); }), thrown_by([&] {
                                     comm.all_gather(View{data.data(), 2, strange.dtype}, strange);
                                   })}) {
        EXPECT_EQ(status.code, ErrorCode::invalid_argument);
        EXPECT_THAT(status.message, HasSubstr("element type number " + std::to_string(number)));
        EXPECT_THAT(status.message, HasSubstr(known_dtypes()));
      }
      const Status status = thrown_by([&] {
        comm.all_reduce(View{data.data(), 4, DType::f32}, static_cast<ReduceOp>(number));
      });
      EXPECT_EQ(status.code, ErrorCode::invalid_argument);
      EXPECT_THAT(status.message, HasSubstr("operator number " + std::to_string(number)));
      EXPECT_THAT(status.message, HasSubstr(known_reduce_ops()));
    }
    EXPECT_EQ(comm.counters().messages_sent, 0u);
    comm.barrier();
  });
}

}  // namespace
}  // namespace gradsync::cases
