// O3: input and output in the same place, apart, or partly the same; inputs that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using testing::HasSubstr;

// Elements that only can be read: a write to them ends the test with SIGSEGV.
class ReadOnly {
 public:
  ReadOnly(DType dtype, std::size_t count, int rank)
      : dtype_(dtype),
        count_(count),
        bytes_(count * size_of(dtype) + 1) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    for (std::size_t i = 0; i < count; ++i) put(dtype, data_, i, at(rank, i));
    ::mprotect(data_, bytes_, PROT_READ);
  }
  ~ReadOnly() { ::munmap(data_, bytes_); }
  ReadOnly(const ReadOnly&) = delete;
  ReadOnly& operator=(const ReadOnly&) = delete;
  operator ConstView() const { return {data_, count_, dtype_}; }
  static double at(int rank, std::size_t i) {
    return static_cast<double>((i + static_cast<std::size_t>(rank) * 3) % 5);
  }

 private:
  DType dtype_;
  std::size_t count_, bytes_;
  void* data_ = nullptr;
};

void expect_reads_only(Communicator& comm, DType dtype, std::size_t n) {
  const auto ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
  const ReadOnly whole(dtype, n * ranks, comm.rank()), part(dtype, n, comm.rank());
  Bytes out(n * ranks * size_of(dtype));
  const View whole_out{out.data(), n * ranks, dtype}, part_out{out.data(), n, dtype};
  const auto sum = [&](std::size_t i) {
    double total = 0;
    for (int r = 0; r < comm.size(); ++r) total += ReadOnly::at(r, i);
    return total;
  };
  for (Algorithm a : algorithms_of(Collective::all_reduce)) {
    comm.all_reduce(whole, whole_out, ReduceOp::sum, {.algorithm = a});
    for (std::size_t i = 0; i < n * ranks; ++i) ASSERT_EQ(get(dtype, out.data(), i), sum(i)) << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::reduce_scatter)) {
    comm.reduce_scatter(whole, part_out, ReduceOp::sum, {.algorithm = a});
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(get(dtype, out.data(), i), sum(me * n + i)) << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::reduce)) {
    comm.reduce(whole, whole_out, ReduceOp::sum, 1, {.algorithm = a});
    for (std::size_t i = 0; me == 1 && i < n * ranks; ++i)
      ASSERT_EQ(get(dtype, out.data(), i), sum(i)) << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::all_gather)) {
    comm.all_gather(part, whole_out, {.algorithm = a});
    for (std::size_t i = 0; i < n * ranks; ++i)
      ASSERT_EQ(get(dtype, out.data(), i), ReadOnly::at(static_cast<int>(i / n), i % n)) << gradsync::name_of(a);
  }
  for (Algorithm a : algorithms_of(Collective::gather)) comm.gather(part, whole_out, 1, {.algorithm = a});
  for (Algorithm a : algorithms_of(Collective::scatter)) {
    comm.scatter(whole, part_out, 0, {.algorithm = a});
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(get(dtype, out.data(), i), ReadOnly::at(0, me * n + i)) << gradsync::name_of(a);
  }
  comm.all_to_all(whole, whole_out);
  if (me < 2) {
    Work sent = comm.send_async(part, static_cast<int>(1 - me));
    comm.recv(part_out, static_cast<int>(1 - me));
    sent.wait();
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(get(dtype, out.data(), i), ReadOnly::at(static_cast<int>(1 - me), i));
  }
}

TEST(CaseO3, InputsOnReadOnlyPagesWorkForEveryCollectiveAndAlgorithm) {
  for (Medium medium : kMedia)
    for (std::uint32_t size : {2u, 5u})
      in_world({.size = size, .medium = medium}, [](Communicator& comm) {
        for (DType dtype : {DType::f16, DType::f32, DType::i8, DType::i64}) expect_reads_only(comm, dtype, 1021);
      });
}

TEST(CaseO3, ReduceScatterWorksInPlaceAtTheRanksOwnBlock) {
  for (Medium medium : kMedia)
    for (DType dtype : {DType::bf16, DType::i32})
      in_world({.size = 3, .medium = medium}, [&](Communicator& comm) {
        for (ReduceOp op : {ReduceOp::max, ReduceOp::avg})
          for (Algorithm a : algorithms_of(Collective::reduce_scatter)) {
            const std::size_t n = 517, first = static_cast<std::size_t>(comm.rank()) * n;
            Bytes data(3 * n * size_of(dtype));
            for (std::size_t i = 0; i < 3 * n; ++i)
              put(dtype, data.data(), i, static_cast<double>(i % 7) + comm.rank());
            std::byte* mine = data.data() + first * size_of(dtype);
            comm.reduce_scatter(ConstView(data.data(), 3 * n, dtype), View{mine, n, dtype}, op, {.algorithm = a});
            for (std::size_t i = 0; i < n; ++i)
              ASSERT_EQ(get(dtype, mine, i), static_cast<double>((first + i) % 7) + (op == ReduceOp::max ? 2 : 1))
                  << gradsync::name_of(a);
          }
      });
}

TEST(CaseO3, AllGatherWorksInPlaceOfTheRanksOwnBlock) {
  for (Medium medium : kMedia)
    in_world({.size = 3, .medium = medium}, [&](Communicator& comm) {
      for (Algorithm a : algorithms_of(Collective::all_gather)) {
        const std::size_t n = 517, first = static_cast<std::size_t>(comm.rank()) * n;
        std::vector<double> data(3 * n, -1);
        for (std::size_t i = 0; i < n; ++i)
          data[first + i] = static_cast<double>(1000 * comm.rank()) + static_cast<double>(i);
        comm.all_gather(ConstView(data.data() + first, n, DType::f64), view(data), {.algorithm = a});
        for (std::size_t i = 0; i < 3 * n; ++i)
          ASSERT_EQ(data[i], static_cast<double>(1000 * (i / n)) + static_cast<double>(i % n)) << gradsync::name_of(a);
      }
    });
}

TEST(CaseO3, PartialOverlapIsRefusedByItsSizeAndMovesNothing) {
  in_world({.size = 2, .medium = Medium::shm}, [](Communicator& comm) {
    std::vector<float> data(64, 1.0f);
    const std::vector<float> before = data;
    float* const p = data.data();
    const auto in = [&](std::size_t at, std::size_t n) { return ConstView(p + at, n, DType::f32); };
    const auto out = [&](std::size_t at, std::size_t n) { return View{p + at, n, DType::f32}; };
    const auto refused = [&](auto&& call, std::size_t elements) {
      try {
        call();
        ADD_FAILURE() << "an overlap of " << elements << " elements was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error.what(), HasSubstr("overlap by " + std::to_string(4 * elements) + " bytes"));
      }
    };
    refused([&] { comm.all_reduce(in(0, 16), out(1, 16), ReduceOp::sum); }, 15);
    refused([&] { comm.all_reduce(in(1, 16), out(0, 16), ReduceOp::sum); }, 15);
    refused([&] { comm.all_reduce(in(0, 16), out(15, 16), ReduceOp::sum); }, 1);
    refused([&] { comm.reduce(in(0, 16), out(4, 16), ReduceOp::sum, comm.rank()); }, 12);
    refused([&] { comm.all_to_all(in(0, 16), out(8, 16)); }, 8);
    const std::size_t wrong_block = 8 * static_cast<std::size_t>(1 - comm.rank());
    refused([&] { comm.reduce_scatter(in(0, 16), out(wrong_block, 8), ReduceOp::sum); }, 8);
    refused([&] { comm.reduce_scatter(in(0, 16), out(4, 8), ReduceOp::sum); }, 8);
    refused([&] { comm.all_gather(in(wrong_block, 8), out(0, 16)); }, 8);
    refused([&] { comm.gather(in(7, 8), out(14, 16), comm.rank()); }, 1);
    refused([&] { comm.scatter(in(0, 16), out(15, 8), comm.rank()); }, 1);
    EXPECT_EQ(data, before);
    EXPECT_EQ(comm.counters().messages_sent, 0u);
    comm.all_reduce(in(0, 16), out(16, 16), ReduceOp::sum);  // touching, not overlapping
    EXPECT_EQ(data[16], 2.0f);
    EXPECT_EQ(data[15], 1.0f);
  });
}

}  // namespace
}  // namespace gradsync::cases
