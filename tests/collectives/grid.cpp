#include "collectives/grid.hpp"

#include <algorithm>

#include "algorithms/catalogue.hpp"
#include "schedule/layouts.hpp"

namespace gradsync::test {
namespace {

bool thorough(Kind kind) {
  if (kind.collective > Collective::reduce_scatter && kind.collective != Collective::reduce)
    return kind.dtype == DType::f32;
  return (kind.dtype == DType::f32 && kind.op == ReduceOp::sum) ||
         (kind.dtype == DType::bf16 && kind.op == ReduceOp::avg) ||
         (kind.dtype == DType::u8 && kind.op == ReduceOp::bit_xor);
}

std::vector<Algorithm> algorithms_of(Collective collective) {
  std::vector<Algorithm> found = {Algorithm::automatic};
  for (const CatalogueEntry& entry : catalogue())
    if (entry.collective == collective) found.push_back(entry.algorithm);
  return found;
}

}  // namespace

std::vector<std::size_t> counts_of(std::uint32_t size) {
  std::vector<std::size_t> counts = {1,          2,       size - 1, size, size + 1, 2 * size - 1, 2 * size + 1,
                                     kSmallMost, kMiddle, kLarge};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

std::vector<Collective> reducing_collectives() {
  return {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce};
}

std::vector<Collective> moving_collectives(std::uint32_t size) {
  std::vector<Collective> all = {Collective::all_gather, Collective::broadcast, Collective::gather, Collective::scatter,
                                 Collective::all_to_all};
  if (size > 1) all.push_back(Collective::send);
  return all;
}

std::size_t kinds_total(std::uint32_t size) {
  std::size_t pairs = 0;
  for (std::size_t dtype = 0; dtype < kDTypeCount; ++dtype)
    for (std::size_t op = 0; op < kReduceOpCount; ++op)
      pairs += supports(static_cast<DType>(dtype), static_cast<ReduceOp>(op)) ? 1 : 0;
  return pairs * reducing_collectives().size() + kDTypeCount * moving_collectives(size).size();
}

std::vector<Call> calls_of(Kind kind, std::size_t count) {
  std::vector<Call> calls;
  const bool small = count <= kSmallMost, every = small || thorough(kind);
  std::size_t turn = static_cast<std::size_t>(kind.dtype) + static_cast<std::size_t>(kind.op) + count;
  for (Algorithm algorithm : algorithms_of(kind.collective)) {
    if (!every && algorithm != Algorithm::automatic) break;
    Call call{
        .collective = kind.collective, .dtype = kind.dtype, .op = kind.op, .algorithm = algorithm, .count = count};
    // Blocks of so many elements would be too much; and a prime number of elements has no equal blocks.
    call.shared = count > kMiddle && has_blocks(kind.collective);
    const bool both = (small && algorithm == Algorithm::automatic) || (!small && thorough(kind));
    const bool may_be_in_place = kind.collective != Collective::send && kind.collective != Collective::broadcast &&
                                 !(kind.collective == Collective::all_to_all && call.shared);
    const CatalogueEntry* entry = find_in_catalogue(kind.collective, algorithm);
    call.segments = entry && entry->pipelines && turn % 3 != 0 ? static_cast<std::uint32_t>(1 + turn % 5) : 0;
    call.in_place = may_be_in_place && ++turn % 2 == 0;
    calls.push_back(call);
    if (!both || !may_be_in_place) continue;
    call.in_place = !call.in_place;
    calls.push_back(call);
  }
  return calls;
}

}  // namespace gradsync::test
