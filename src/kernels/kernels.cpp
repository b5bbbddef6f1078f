#include "kernels/kernels.hpp"

#include <array>
#include <cstring>

#include "base/float_mode.hpp"
#include "base/status.hpp"
#include "kernels/dispatch.hpp"

namespace gradsync::kernels {
namespace {

bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

void copy(void* into, const void* from, std::size_t bytes) {
  if (into != from && bytes != 0) std::memcpy(into, from, bytes);
}

void reduce(Work work, ReduceOp op, const Streams& streams) {
  switch (work) {
    case Work::f32:
    case Work::f64: {
      const DefaultFloatMode mode;
      return combine_floats(work, op, streams);
    }
    case Work::f16:
    case Work::bf16: return combine_halves(work, op, streams);
    case Work::i128:
    case Work::u128: return combine_wide(work, streams);
    default: return combine_integers(work, op, streams);
  }
}

}  // namespace

Work same_as(DType dtype) {
  static_assert(static_cast<int>(Work::f16) == static_cast<int>(DType::f16));
  static_assert(static_cast<int>(Work::boolean) == static_cast<int>(DType::boolean));
  return static_cast<Work>(dtype);
}

Work work_of(DType dtype, ReduceOp op) {
  if (is_half(dtype) && op != ReduceOp::min && op != ReduceOp::max) return Work::f32;
  if (op != ReduceOp::avg || is_floating(dtype) || dtype == DType::boolean) return same_as(dtype);
  if (dtype == DType::i64) return Work::i128;
  return dtype == DType::u64 ? Work::u128 : Work::i64;
}

std::size_t size_of(Work work) {
  static constexpr std::array<std::size_t, 13> sizes = {2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 1, 16, 16};
  return sizes[static_cast<std::size_t>(work)];
}

bool defined(Work work, ReduceOp op) {
  switch (work) {
    case Work::f16:
    case Work::bf16: return op == ReduceOp::min || op == ReduceOp::max;
    case Work::f32:
    case Work::f64: return op <= ReduceOp::max;
    case Work::i64: return op <= ReduceOp::bit_xor;
    case Work::i128:
    case Work::u128: return op == ReduceOp::avg;
    default: return op <= ReduceOp::bit_xor && op != ReduceOp::avg;
  }
}

void combine(Work work, ReduceOp op, void* into, const void* from, std::size_t count, void* also) {
  GRADSYNC_CHECK(defined(work, op));
  if (count == 0) return;
  const std::array<const void*, 2> both = {into, from};
  reduce(work, op, {into, both.data(), both.size(), count, also});
}

void combine_many(Work work, ReduceOp op, void* into, std::span<const void* const> from, std::size_t count) {
  GRADSYNC_CHECK(defined(work, op));
  GRADSYNC_CHECK(!from.empty());
  if (count == 0) return;
  if (from.size() == 1 && work != Work::boolean) return copy(into, from[0], count * size_of(work));
  reduce(work, op, {into, from.data(), from.size(), count});
}

void combine_and_divide(Work work, std::uint64_t contributions, void* into, const void* from, std::size_t count,
                        void* also) {
  GRADSYNC_CHECK(work == Work::f32 || work == Work::f64);
  GRADSYNC_CHECK(contributions >= 1);
  if (count == 0) return;
  const DefaultFloatMode mode;
  const std::array<const void*, 2> both = {into, from};
  add_and_divide_floats(work, contributions, {into, both.data(), both.size(), count, also});
}

void divide(Work work, std::uint64_t contributions, void* into, const void* from, std::size_t count) {
  GRADSYNC_CHECK(work == Work::f32 || work == Work::f64);
  GRADSYNC_CHECK(contributions >= 1);
  if (count == 0) return;
  const DefaultFloatMode mode;
  divide_floats(work, contributions, {into, from, count});
}

void widen(DType dtype, Work work, void* into, const void* from, std::size_t count) {
  if (work == same_as(dtype)) return copy(into, from, count * size_of(dtype));
  if (is_half(dtype)) {
    GRADSYNC_CHECK(work == Work::f32);
    const DefaultFloatMode mode;
    return widen_halves(dtype, {into, from, count});
  }
  GRADSYNC_CHECK(is_integer(dtype) && work == work_of(dtype, ReduceOp::avg));
  widen_integers(dtype, {into, from, count});
}

void finish(DType dtype, ReduceOp op, Work work, std::uint64_t contributions, void* into, const void* from,
            std::size_t count) {
  GRADSYNC_CHECK(supports(dtype, op) && work == work_of(dtype, op));
  GRADSYNC_CHECK(contributions >= 1);
  if (count == 0) return;
  const std::uint64_t divisor = op == ReduceOp::avg ? contributions : 1;
  if (is_half(dtype) && work == Work::f32) {
    const DefaultFloatMode mode;
    return narrow_halves(dtype, divisor, {into, from, count});
  }
  if (dtype == DType::boolean) return combine_many(work, op, into, {&from, 1}, count);
  if (op != ReduceOp::avg) return copy(into, from, count * size_of(dtype));
  if (is_integer(dtype)) return divide_integers(dtype, divisor, {into, from, count});
  divide(work, divisor, into, from, count);
}

std::vector<std::string_view> instruction_sets() { return compiled_instruction_sets(); }

std::string_view instruction_set() { return chosen_instruction_set(); }

bool force_instruction_set(std::string_view name) { return choose_instruction_set(name); }

}  // namespace gradsync::kernels
