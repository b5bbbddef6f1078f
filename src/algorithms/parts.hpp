// The reusable halves of the algorithms. A part emits what one member of a team does and returns the range that the
// member then owns, so that a collective is a call sequence.
#pragma once

#include <cstdint>

#include "schedule/emit.hpp"
#include "schedule/team.hpp"

namespace gradsync {

// Where a reduction finds this rank's own contribution and where it may keep partial results. Chunk numbers are those
// of the message in both. With `from` == `work` the contribution is reduced where it lies.
struct Places {
  Space from = Space::input;
  Space work = Space::output;
};

inline Operand at(Space space, Range range) { return {space, range}; }
inline Operand at(Space space, std::uint32_t first, std::uint32_t count = 1) { return {space, {first, count}}; }

// The i-th of `parts` equal parts of a range; the range's count must be a multiple of `parts`.
inline Range part_of(Range all, std::uint32_t parts, std::uint32_t i) {
  GRADSYNC_CHECK(all.count % parts == 0 && i < parts);
  return {all.first + all.count / parts * i, all.count / parts};
}

// Makes `work` hold what `from` holds, unless they are one place.
inline void bring(Emit& out, Places places, Range range) {
  if (places.from != places.work) out.copy(at(places.work, range), at(places.from, range));
}

// ⌈log2 n⌉ and the largest power of two <= n, for n >= 1.
constexpr std::uint32_t log2_ceil(std::uint32_t n) {
  return n <= 1 ? 0 : 32u - static_cast<std::uint32_t>(__builtin_clz(n - 1));
}
constexpr std::uint32_t power_of_two_floor(std::uint32_t n) { return 1u << (31 - __builtin_clz(n)); }

// Whether `all` is a whole cycle of its space, so that a range past its end wraps and stays one message, or only a
// stretch of it, so that such a range is sent as two.
enum class Wrap : std::uint8_t { whole, split };

// Reduce-scatters: `all` is cut into team.size() equal parts and the sum of part team.me() ends in `mine` (which is
// that part of `places.work` unless the caller wants it elsewhere). Other parts of `places.work` are left with
// garbage.
Range ring_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine);
Range circulant_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine,
                               Wrap wrap = Wrap::whole);
Range direct_reduce_scatter(Emit& out, const Team& team, Range all, Places places, Operand mine);

// All-gathers: each member's part of `all` lies in its output; afterwards everyone's do.
void ring_all_gather(Emit& out, const Team& team, Range all);
void circulant_all_gather(Emit& out, const Team& team, Range all, Wrap wrap = Wrap::whole);
void direct_all_gather(Emit& out, const Team& team, Range all);

// The contributions of a team in the order of its positions, ((x0 + x1) + x2) + …, into `into`; every other member
// sends its own of this range. What precedes this member's position is summed in scratch at `range`, from position 2
// on.
void reduce_in_order(Emit& out, const Team& team, Range range, Space from, Operand into);
inline std::uint32_t scratch_of_reduce_in_order(std::uint32_t position) { return position >= 2 ? 1 : 0; }

}  // namespace gradsync
