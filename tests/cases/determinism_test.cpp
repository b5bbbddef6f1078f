// O1, O2: equal bits on all ranks and from run to run; what may differ is what docs/determinism.md says.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/random.hpp"
#include "support/digest.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

// Normal floats of every exponent from 2^-60 to 2^60 and both signs: sums of them depend on the order.
std::vector<float> wide_floats(int rank, std::size_t count, std::uint64_t seed = 7) {
  Random random(seed * 1000 + static_cast<std::uint64_t>(rank));
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t bits = random.next();
    const auto exponent = static_cast<std::uint32_t>(67 + (bits >> 40) % 120);
    value = std::bit_cast<float>(static_cast<std::uint32_t>(bits & 0x807fffff) | exponent << 23);
  }
  return values;
}

std::string digest_of(std::span<const float> values) {
  test::Digest digest;
  digest.add(std::as_bytes(values));
  return test::hex(digest.take());
}

// The digests of all ranks, which must be equal; the one that they have in common.
std::string common_digest(std::vector<Communicator>& ranks, const std::function<std::string(Communicator&)>& result) {
  std::vector<std::string> digests(ranks.size());
  on_ranks(ranks, [&](Communicator& comm) { digests[static_cast<std::size_t>(comm.rank())] = result(comm); });
  for (const std::string& digest : digests) EXPECT_EQ(digest, digests[0]);
  return digests[0];
}

void expect_equal_digests(const World& world, const std::vector<std::size_t>& counts) {
  SCOPED_TRACE(describe(world));
  std::vector<Communicator> ranks = open(world);
  for (std::size_t count : counts)
    for (Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
      SCOPED_TRACE(std::string(gradsync::name_of(algorithm)) + " of " + std::to_string(count));
      common_digest(ranks, [&](Communicator& comm) {
        std::vector<float> values = wide_floats(comm.rank(), count);
        comm.all_reduce(view(values), ReduceOp::sum, {.algorithm = algorithm});
        return digest_of(values);
      });
    }
}

TEST(CaseO1, AllRanksHoldTheSameBitsByEveryAlgorithm) {
  for (Medium medium : {Medium::loopback, Medium::shm, Medium::tcp, Medium::mixed})
    for (std::uint32_t size : {2u, 3u, 5u, 8u})
      expect_equal_digests({.size = size, .medium = medium}, {1, 5, 1025, 16387});
}

TEST(CaseO1, AllRanksHoldTheSameBitsOf64Megabytes) {
  expect_equal_digests({.size = 3, .medium = Medium::shm, .timeout = std::chrono::seconds(30)},
                       {std::size_t{16} << 20});
}

// How a tensor is reduced: alone, in pieces, or behind another one.
enum class Packing { one_call, seven_pieces, behind_another };
constexpr std::size_t kCount = 1'000'000;

std::string reduce_packed(Communicator& comm, Packing packing, Algorithm algorithm) {
  const std::vector<float> values = wide_floats(comm.rank(), kCount);
  constexpr std::size_t kBefore = 12345;
  std::vector<float> buffer =
      packing == Packing::behind_another ? wide_floats(comm.rank(), kBefore, 8) : std::vector<float>();
  const std::size_t start = buffer.size();
  buffer.insert(buffer.end(), values.begin(), values.end());
  std::vector<std::size_t> ends = {buffer.size()};
  if (packing == Packing::seven_pieces) ends = {1, 1000, 99'999, 250'000, 250'007, 700'001, kCount};
  for (std::size_t first = 0, i = 0; i < ends.size(); first = ends[i++])
    comm.all_reduce(View{buffer.data() + first, ends[i] - first, DType::f32}, ReduceOp::sum, {.algorithm = algorithm});
  return digest_of(std::span<const float>(buffer).subspan(start));
}

// docs/determinism.md: whether the order of a sum depends on where in the message it stands. Hosts: how many.
bool order_depends_on_position(Algorithm algorithm, std::uint32_t size, std::uint32_t hosts = 1) {
  switch (algorithm) {
    case Algorithm::ring:
    case Algorithm::double_tree: return size > 2;
    case Algorithm::circulant: return !std::has_single_bit(size);
    case Algorithm::hierarchical: return !std::has_single_bit(hosts);
    default: return false;
  }
}

// The digest that five fresh worlds have in common. With a fixed algorithm the transport does not matter.
std::string digest_of_fresh_runs(Algorithm algorithm, Packing packing) {
  std::string first;
  for (Medium medium : {Medium::shm, Medium::tcp, Medium::mixed, Medium::shm, Medium::loopback}) {
    // What is chosen, and what hierarchical does, follows from the hosts and the transport: another plan, other bits.
    const bool plan_follows_medium = algorithm == Algorithm::hierarchical || algorithm == Algorithm::automatic;
    std::vector<Communicator> ranks =
        open({.size = 3, .medium = plan_follows_medium ? Medium::tcp : medium, .timeout = std::chrono::seconds(20)});
    const std::string digest =
        common_digest(ranks, [&](Communicator& comm) { return reduce_packed(comm, packing, algorithm); });
    if (first.empty()) first = digest;
    EXPECT_EQ(digest, first) << gradsync::name_of(algorithm) << " over " << name_of(medium);
  }
  return first;
}

TEST(CaseO2, FreshRunsGiveTheSameBitsAndPackingChangesThemOnlyWhereDocumented) {
  for (Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
    SCOPED_TRACE(std::string(gradsync::name_of(algorithm)));
    const std::string alone = digest_of_fresh_runs(algorithm, Packing::one_call);
    const std::string pieces = digest_of_fresh_runs(algorithm, Packing::seven_pieces);
    const std::string behind = digest_of_fresh_runs(algorithm, Packing::behind_another);
    if (algorithm == Algorithm::automatic) continue;  // may choose another algorithm for each size
    const bool differs = order_depends_on_position(algorithm, 3);
    EXPECT_EQ(pieces != alone, differs);
    EXPECT_EQ(behind != alone, differs);
  }
}

TEST(CaseO2, FreshRunsOnTwoHostsGiveTheSameBits) {
  for (Algorithm algorithm : {Algorithm::automatic, Algorithm::hierarchical}) {
    std::string first;
    for (int run = 0; run < 5; ++run) {
      std::vector<Communicator> ranks = open({.size = 4, .medium = Medium::mixed, .timeout = std::chrono::seconds(20)});
      const std::string digest =
          common_digest(ranks, [&](Communicator& comm) { return reduce_packed(comm, Packing::one_call, algorithm); });
      if (first.empty()) first = digest;
      EXPECT_EQ(digest, first) << gradsync::name_of(algorithm);
    }
  }
}

// Every rank holds one value at all positions: the sum is the same everywhere unless its order depends on the position.
bool sums_differ_between_positions(std::vector<Communicator>& ranks, Algorithm algorithm) {
  std::atomic<bool> differ{false};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    on_ranks(ranks, [&](Communicator& comm) {
      const float mine = static_cast<float>(Random(seed * 64 + static_cast<std::uint64_t>(comm.rank())).unit());
      std::vector<float> values(997, mine);
      comm.all_reduce(view(values), ReduceOp::sum, {.algorithm = algorithm, .segments = 3});
      for (float value : values)
        if (value != values[0]) differ = true;
    });
  return differ;
}

TEST(CaseO2, TheOrderOfASumDependsOnItsPositionExactlyWhereDocumented) {
  for (std::uint32_t size = 2; size <= 8; ++size) {
    std::vector<Communicator> ranks = open({.size = size});
    for (Algorithm algorithm : algorithms_of(Collective::all_reduce)) {
      if (algorithm == Algorithm::automatic) continue;
      EXPECT_EQ(sums_differ_between_positions(ranks, algorithm), order_depends_on_position(algorithm, size))
          << gradsync::name_of(algorithm) << ", " << size << " ranks";
    }
  }
}

TEST(CaseO2, TheOrderOfAHierarchicalSumDependsOnItsPositionExactlyWhereDocumented) {
  for (const std::vector<std::string>& hosts : std::vector<std::vector<std::string>>{{"a", "a", "b", "b", "b"},
                                                                                     {"a", "b", "a", "b"},
                                                                                     {"a", "a", "b", "b", "c", "c"},
                                                                                     {"a", "b", "c", "d"},
                                                                                     {"a", "b", "c", "c", "d", "e"}}) {
    std::vector<Communicator> ranks =
        open({.size = static_cast<std::uint32_t>(hosts.size()), .medium = Medium::mixed, .hosts = hosts});
    const std::uint32_t count =
        ranks[0].hosts().empty() ? 1 : 1 + *std::max_element(ranks[0].hosts().begin(), ranks[0].hosts().end());
    EXPECT_EQ(sums_differ_between_positions(ranks, Algorithm::hierarchical),
              order_depends_on_position(Algorithm::hierarchical, static_cast<std::uint32_t>(hosts.size()), count))
        << hosts.size() << " ranks on " << count << " hosts";
  }
}

}  // namespace
}  // namespace gradsync::cases
