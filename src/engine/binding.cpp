#include "engine/binding.hpp"

#include <algorithm>
#include <functional>

namespace gradsync {
namespace {

// The lowest position of the stretch (which begins at position `base` of its region) that meets [begin, end).
std::uint64_t meet(const Region::Stretch& stretch, std::uint64_t base, std::uint64_t done, const std::byte* begin,
                   const std::byte* end, std::uint64_t none) {
  const std::less<const std::byte*> before;
  if (stretch.bytes == 0 || begin == end) return none;
  const std::uint64_t skip = done > base ? std::min(done - base, stretch.bytes) : 0;
  const std::byte* first = stretch.data + skip;
  const std::byte* last = stretch.data + stretch.bytes;
  const std::byte* start = before(first, begin) ? begin : first;
  if (!before(start, last) || !before(start, end)) return none;
  return base + static_cast<std::uint64_t>(start - stretch.data);
}

}  // namespace

std::uint64_t first_conflict(const Region& mine, std::uint64_t mine_done, const Region& theirs,
                             std::uint64_t theirs_done) {
  std::uint64_t limit = mine.bytes(), their_base = 0;
  for (const Region::Stretch& their : theirs.stretches()) {
    const std::uint64_t skip = theirs_done > their_base ? std::min(theirs_done - their_base, their.bytes) : 0;
    std::uint64_t base = 0;
    for (const Region::Stretch& stretch : mine.stretches()) {
      limit =
          std::min(limit, meet(stretch, base, mine_done, their.data + skip, their.data + their.bytes, mine.bytes()));
      base += stretch.bytes;
    }
    their_base += their.bytes;
  }
  return limit;
}

Region Binding::region(Space space, Range range) const {
  const Memory& memory = spaces[static_cast<std::size_t>(space)];
  const std::uint32_t cycle = shape.cycle(space), group = range.first / cycle * cycle;
  const std::uint32_t skipped = space == Space::scratch ? 0
                                : space == Space::input ? shape.input.first
                                                        : shape.output.first;
  const std::uint64_t origin = memory.layout.offset(skipped);
  const std::uint64_t copy = space == Space::scratch ? group / cycle * memory.layout.elements() : 0;
  const auto at = [&](std::uint32_t chunk) {
    return (memory.layout.offset(skipped + chunk) - origin + copy) * element_bytes;
  };
  const std::uint32_t begin = range.first - group, end = begin + range.count;
  if (end <= cycle) return Region({memory.data + at(begin), at(end) - at(begin)}, {});
  return Region({memory.data + at(begin), at(cycle) - at(begin)}, {memory.data + at(0), at(end - cycle) - at(0)});
}

std::uint64_t Binding::elements(Space space) const {
  const Memory& memory = spaces[static_cast<std::size_t>(space)];
  if (space == Space::scratch) return shape.scratch_copies * memory.layout.elements();
  const Window window = space == Space::input ? shape.input : shape.output;
  return memory.layout.offset(window.first + window.count) - memory.layout.offset(window.first);
}

}  // namespace gradsync
