// V2: counts around the number of ranks and primes, at odd element offsets, between guard bytes.
#include <gtest/gtest.h>

#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using kernels::reference::Guarded;

std::vector<std::size_t> counts_for(std::uint32_t size) {
  return {1, 2, size - 1, size, size + 1, 2 * size - 1, 2 * size + 1, 4093, size % 4 == 3 ? std::size_t{65521} : 4099};
}

// Small enough that every sum is exact in f32, different at every rank and position.
template <class T>
T value(int rank, std::size_t i) {
  return static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101) - static_cast<T>(50);
}
template <class T>
T sum_at(int size, std::size_t i) {
  T sum = 0;
  for (int r = 0; r < size; ++r) sum += value<T>(r, i);
  return sum;
}

template <class T>
struct Place {
  Guarded guarded;
  std::span<T> elements;
  // At `offset` elements past a cache line.
  Place(std::size_t count, std::size_t offset)
      : guarded(count * sizeof(T), offset * sizeof(T)),
        elements(reinterpret_cast<T*>(guarded.data()), count) {}
  void fill(int rank) {
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = value<T>(rank, i);
  }
};

template <class T>
std::size_t wrong_sums(std::span<const T> out, int size, std::size_t first = 0) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != sum_at<T>(size, first + i);
  return wrong;
}

template <class T>
void expect_all_reduce(Communicator& comm, Algorithm algorithm, std::size_t count) {
  SCOPED_TRACE(std::string(gradsync::name_of(algorithm)) + " of " + std::to_string(count));
  Place<T> in(count, 1), out(count, 3);
  in.fill(comm.rank());
  comm.all_reduce(ConstView(in.elements.data(), count, dtype_of<T>()), view(out.elements), ReduceOp::sum,
                  {.algorithm = algorithm});
  EXPECT_EQ(wrong_sums<T>(out.elements, comm.size()), 0u);
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_EQ(in.elements[i], value<T>(comm.rank(), i)) << "the input was written";
  comm.all_reduce(view(in.elements), ReduceOp::sum, {.algorithm = algorithm});
  EXPECT_EQ(wrong_sums<T>(in.elements, comm.size()), 0u);
  EXPECT_TRUE(in.guarded.intact() && out.guarded.intact()) << "a guard byte was written";
}

template <class T>
void expect_reduce_scatter(Communicator& comm, Algorithm algorithm, std::size_t block) {
  SCOPED_TRACE(std::string(gradsync::name_of(algorithm)) + " of blocks of " + std::to_string(block));
  const std::size_t ranks = static_cast<std::size_t>(comm.size()),
                    first = static_cast<std::size_t>(comm.rank()) * block;
  Place<T> in(block * ranks, 1), out(block, 5);
  in.fill(comm.rank());
  const ConstView input(in.elements.data(), in.elements.size(), dtype_of<T>());
  comm.reduce_scatter(input, view(out.elements), ReduceOp::sum, {.algorithm = algorithm});
  EXPECT_EQ(wrong_sums<T>(out.elements, comm.size(), first), 0u);
  const std::span<T> mine = in.elements.subspan(first, block);
  comm.reduce_scatter(input, view(mine), ReduceOp::sum, {.algorithm = algorithm});
  EXPECT_EQ(wrong_sums<T>(mine, comm.size(), first), 0u);
  EXPECT_TRUE(in.guarded.intact() && out.guarded.intact()) << "a guard byte was written";
}

template <class T>
void expect_all_gather(Communicator& comm, Algorithm algorithm, std::size_t block) {
  SCOPED_TRACE(std::string(gradsync::name_of(algorithm)) + " of blocks of " + std::to_string(block));
  const std::size_t ranks = static_cast<std::size_t>(comm.size()),
                    first = static_cast<std::size_t>(comm.rank()) * block;
  Place<T> in(block, 7), out(block * ranks, 1);
  const auto check = [&] {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.elements.size(); ++i)
      wrong += out.elements[i] != value<T>(static_cast<int>(i / block), i % block);
    EXPECT_EQ(wrong, 0u);
  };
  in.fill(comm.rank());
  comm.all_gather(ConstView(in.elements.data(), block, dtype_of<T>()), view(out.elements), {.algorithm = algorithm});
  check();
  std::fill(out.elements.begin(), out.elements.end(), T{99});
  std::copy(in.elements.begin(), in.elements.end(), out.elements.begin() + static_cast<std::ptrdiff_t>(first));
  comm.all_gather(ConstView(out.elements.data() + first, block, dtype_of<T>()), view(out.elements),
                  {.algorithm = algorithm});
  check();
  EXPECT_TRUE(in.guarded.intact() && out.guarded.intact()) << "a guard byte was written";
}

template <class T>
void expect_everything(const World& world) {
  in_world(world, [](Communicator& comm) {
    for (std::size_t count : counts_for(static_cast<std::uint32_t>(comm.size()))) {
      if (count == 0) continue;
      for (Algorithm a : algorithms_of(Collective::all_reduce)) expect_all_reduce<T>(comm, a, count);
      if (count > 10000) continue;  // blocks: times the number of ranks
      for (Algorithm a : algorithms_of(Collective::reduce_scatter)) expect_reduce_scatter<T>(comm, a, count);
      for (Algorithm a : algorithms_of(Collective::all_gather)) expect_all_gather<T>(comm, a, count);
    }
  });
}

TEST(CaseV2, IntegersAreExactAtOddOffsetsBetweenGuards) {
  for (std::uint32_t size : {2u, 3u, 4u, 5u, 6u, 7u, 8u}) expect_everything<std::int32_t>({.size = size});
  for (Medium medium : {Medium::shm, Medium::tcp, Medium::mixed})
    for (std::uint32_t size : {3u, 4u, 7u}) expect_everything<std::int32_t>({.size = size, .medium = medium});
}

TEST(CaseV2, BytesAndFloatsAtOddOffsetsBetweenGuards) {
  for (std::uint32_t size : {3u, 5u}) {
    expect_everything<float>({.size = size});
    expect_everything<std::int8_t>({.size = size});
    expect_everything<double>({.size = size, .medium = Medium::shm});
  }
}

TEST(CaseV2, AMillionAndThreeElementsByEveryAlgorithm) {
  for (Medium medium : kMedia)
    in_world({.size = 3, .medium = medium, .timeout = std::chrono::seconds(20)}, [](Communicator& comm) {
      for (Algorithm a : algorithms_of(Collective::all_reduce)) expect_all_reduce<std::int32_t>(comm, a, 1000003);
    });
}

}  // namespace
}  // namespace gradsync::cases
