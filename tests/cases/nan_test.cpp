// V4: NaN, infinities and signed zeros, held by any one rank, in head, body and tail of a message.
#include <gtest/gtest.h>

#include "values.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

constexpr std::uint32_t kRanks = 4;
constexpr std::size_t kCount = 1031;  // a prime: no instruction set's vectors divide it

std::size_t mantissa_bits(DType dtype) {
  switch (dtype) {
    case DType::f16: return 10;
    case DType::bf16: return 7;
    case DType::f32: return 23;
    default: return 52;
  }
}

// Bits of ±0, ±inf, and quiet and signalling NaNs of both signs.
std::vector<std::uint64_t> strange_bits(DType dtype) {
  const std::size_t mantissa = mantissa_bits(dtype), width = 8 * size_of(dtype);
  const std::uint64_t sign = std::uint64_t{1} << (width - 1), quiet = std::uint64_t{1} << (mantissa - 1);
  const std::uint64_t infinity = (sign - 1) >> mantissa << mantissa;
  std::vector<std::uint64_t> all;
  for (std::uint64_t bits :
       {infinity | quiet, infinity | quiet | 3, infinity | 1, infinity | (quiet - 1), infinity, std::uint64_t{0}}) {
    all.push_back(bits);
    all.push_back(bits | sign);
  }
  return all;
}

// What a rank contributes: 1, 2, 3, 4 by rank (or zeros of both signs), but at 48 places of the head, the body and the tail each, one
// rank holds strange bits.
Bytes contribution(DType dtype, int rank) {
  Bytes data(kCount * size_of(dtype));
  const std::vector<std::uint64_t> strange = strange_bits(dtype);
  for (std::size_t i = 0; i < kCount; ++i) put(dtype, data.data(), i, i % 5 == 4 ? 0.0 : rank + 1);
  const std::size_t places = strange.size() * kRanks;
  for (std::size_t start : {std::size_t{0}, kCount / 2, kCount - places})
    for (std::size_t k = 0; k < places; ++k) {
      if (static_cast<int>(k % kRanks) != rank) continue;
      const std::uint64_t bits = strange[k / kRanks];
      std::memcpy(data.data() + (start + k) * size_of(dtype), &bits, size_of(dtype));
    }
  return data;
}

// Small whole numbers, infinities and NaN: sums and extremes are the same in any order.
Bytes expected(DType dtype, ReduceOp op) {
  using namespace kernels::reference;
  const kernels::Work work = kernels::work_of(dtype, op);
  Bytes result;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    const Bytes mine = contribution(dtype, static_cast<int>(r));
    Bytes wide(kCount * kernels::size_of(work));
    if (work == kernels::same_as(dtype)) wide = mine;
    else
      for (std::size_t i = 0; i < kCount; ++i) store(wide.data(), i, static_cast<float>(get(dtype, mine.data(), i)));
    if (r == 0) result = wide;
    else kernels::reference::combine(work, op, result.data(), wide.data(), kCount);
  }
  if (work == kernels::same_as(dtype)) return result;
  Bytes narrow(kCount * size_of(dtype));
  for (std::size_t i = 0; i < kCount; ++i) {
    const float value = load<float>(result.data(), i);
    store(narrow.data(), i, round_quotient(format_of(dtype), value, 1.0));
  }
  return narrow;
}

void expect_same_bits_everywhere(Communicator& comm, DType dtype, ReduceOp op, Algorithm algorithm,
                                 const Bytes& wanted) {
  Bytes data = contribution(dtype, comm.rank());
  comm.all_reduce(View{data.data(), kCount, dtype}, op, {.algorithm = algorithm});
  std::size_t wrong = 0, first_wrong = 0;
  for (std::size_t i = kCount; i-- > 0;)
    if (std::memcmp(data.data() + i * size_of(dtype), wanted.data() + i * size_of(dtype), size_of(dtype)) != 0)
      ++wrong, first_wrong = i;
  EXPECT_EQ(wrong, 0u) << gradsync::name_of(op) << " of " << gradsync::name_of(dtype) << " by "
                       << gradsync::name_of(algorithm) << ": element " << first_wrong << " is "
                       << get(dtype, data.data(), first_wrong) << ", expected "
                       << get(dtype, wanted.data(), first_wrong);
}

class CaseV4 : public testing::TestWithParam<Medium> {};

TEST_P(CaseV4, StrangeFloatsOfAnyRankComeOutWithEqualBitsByEveryAlgorithmAndInstructionSet) {
  std::vector<Communicator> ranks = open({.size = kRanks, .medium = GetParam()});
  for (const std::string_view set : kernels::instruction_sets()) {
    SCOPED_TRACE("instruction set " + std::string(set));
    ASSERT_TRUE(kernels::force_instruction_set(set));
    for (DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
      for (ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum}) {
        const Bytes wanted = expected(dtype, op);
        on_ranks(ranks, [&](Communicator& comm) {
          for (Algorithm a : algorithms_of(Collective::all_reduce))
            expect_same_bits_everywhere(comm, dtype, op, a, wanted);
        });
      }
  }
  ASSERT_TRUE(kernels::force_instruction_set(""));
}

TEST_P(CaseV4, ANanAmongOneThreeFourIsTheMinimumAndTheMaximum) {
  in_world({.size = 4, .medium = GetParam()}, [](Communicator& comm) {
    for (int holder = 0; holder < 4; ++holder)
      for (ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum, ReduceOp::avg, ReduceOp::product})
        for (Algorithm a : algorithms_of(Collective::all_reduce)) {
          float x = comm.rank() == holder ? std::nanf("") : static_cast<float>(comm.rank() + 1);
          comm.all_reduce(View{&x, 1, DType::f32}, op, {.algorithm = a});
          EXPECT_EQ(std::bit_cast<std::uint32_t>(x), 0x7fc00000u)
              << gradsync::name_of(op) << " by " << gradsync::name_of(a);
        }
  });
}

INSTANTIATE_TEST_SUITE_P(, CaseV4, testing::ValuesIn(kMedia),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace gradsync::cases
