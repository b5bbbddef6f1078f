// What gradients need beside a reduction: scaling, the norm, and the search for what is not finite.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradient.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/halves_inl.hpp"

#include "base/float_mode.hpp"
#include "base/status.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct Product : Plain {
  T factor;
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D>) const {
    return a;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> v) const {
    return canonical_nan(d, hn::Mul(v, hn::Set(d, factor)));
  }
};

template <class T>
void scale_floats(void* data, std::size_t count, double factor) {
  Product<T> product;
  product.factor = static_cast<T>(factor);
  const void* from = data;
  reduce_streams<T>(product, {data, &from, 1, count});
}

// What a product lost is a float, but near the smallest ones, where the lost part is itself rounded.
HWY_INLINE VF32 multiply_to_odd(VF32 a, VF32 n) {
  const VF32 q = hn::Mul(a, n);
  return to_odd(q, hn::Neg(minus_product(q, a, n)));
}

template <class Half>
void scale_half(void* data, std::size_t count, double factor) {
  const VF32 n = hn::Set(F32(), static_cast<float>(factor));
  convert_array(U16(), U16(), {data, data, count}, [n](VU16 v) HWY_ATTR {
    return Half::narrow(canonical_nan(F32(), multiply_to_odd(Half::widen(v), n)));
  });
}

void scale_array(DType dtype, void* data, std::size_t count, double factor) {
  switch (dtype) {
    case DType::f16: return scale_half<F16>(data, count, factor);
    case DType::bf16: return scale_half<Bf16>(data, count, factor);
    case DType::f32: return scale_floats<float>(data, count, factor);
    default: return scale_floats<double>(data, count, factor);
  }
}

// Lanes of the sum, a multiple of four vectors of every instruction set, and elements taken at a time, which stay in the
// first-level cache while four vectors of lanes after four pass over them.
constexpr std::size_t kSumLanes = 32, kSumPiece = 1024;
using F64 = hn::CappedTag<double, 8>;

template <class T>
HWY_INLINE hn::Vec<F64> square_at(const std::byte* from) {
  const F64 d;
  hn::Vec<F64> v;
  if constexpr (sizeof(T) == 8) v = load(d, from);
  else v = hn::PromoteTo(d, load(hn::Rebind<float, F64>(), from));
  return hn::Mul(v, v);
}

// `count` elements, a multiple of the lanes.
template <class T>
HWY_INLINE void add_squares(double* lanes, const std::byte* from, std::size_t count) {
  const F64 d;
  const std::size_t n = hn::Lanes(d), vector = n * sizeof(T);
  const std::byte* const end = from + count * sizeof(T);
  for (std::size_t lane = 0; lane < kSumLanes; lane += 4 * n) {
    auto a = hn::Load(d, lanes + lane), b = hn::Load(d, lanes + lane + n);
    auto c = hn::Load(d, lanes + lane + 2 * n), e = hn::Load(d, lanes + lane + 3 * n);
    for (const std::byte* at = from + lane * sizeof(T); at < end; at += kSumLanes * sizeof(T)) {
      a = hn::Add(a, square_at<T>(at));
      b = hn::Add(b, square_at<T>(at + vector));
      c = hn::Add(c, square_at<T>(at + 2 * vector));
      e = hn::Add(e, square_at<T>(at + 3 * vector));
    }
    hn::Store(a, d, lanes + lane);
    hn::Store(b, d, lanes + lane + n);
    hn::Store(c, d, lanes + lane + 2 * n);
    hn::Store(e, d, lanes + lane + 3 * n);
  }
}

// At most a piece; what lacks to a multiple of the lanes counts as zeros, which change no sum of squares.
template <class T>
HWY_INLINE void add_piece(double* lanes, const std::byte* from, std::size_t count) {
  const std::size_t whole = count / kSumLanes * kSumLanes;
  add_squares<T>(lanes, from, whole);
  if (whole == count) return;
  alignas(64) std::byte rest[kSumLanes * sizeof(T)] = {};
  std::memcpy(rest, from + whole * sizeof(T), (count - whole) * sizeof(T));
  add_squares<T>(lanes, rest, kSumLanes);
}

template <class Half>
HWY_INLINE void add_halves(double* lanes, const std::byte* from, std::size_t count) {
  alignas(64) float wide[kSumPiece];
  convert_array(F32(), U16(), {wide, from, count}, [](VU16 v) HWY_ATTR { return Half::widen(v); });
  add_piece<float>(lanes, reinterpret_cast<const std::byte*>(wide), count);
}

HWY_INLINE void add_piece_of(DType dtype, double* lanes, const std::byte* from, std::size_t count) {
  switch (dtype) {
    case DType::f16: return add_halves<F16>(lanes, from, count);
    case DType::bf16: return add_halves<Bf16>(lanes, from, count);
    case DType::f32: return add_piece<float>(lanes, from, count);
    default: return add_piece<double>(lanes, from, count);
  }
}

double squares(DType dtype, const void* data, std::size_t count) {
  alignas(64) double lanes[kSumLanes] = {};
  const auto* from = static_cast<const std::byte*>(data);
  const std::size_t size = gradsync::size_of(dtype);
  for (std::size_t i = 0; i < count; i += kSumPiece)
    add_piece_of(dtype, lanes, from + i * size, count - i < kSumPiece ? count - i : kSumPiece);
  for (std::size_t half = kSumLanes / 2; half != 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
  return lanes[0] == lanes[0] ? lanes[0] : hn::GetLane(quiet_nan(F64()));
}

// By the bits of the exponent, all set for infinities and NaNs.
template <class Bits>
std::size_t find_exponent(Bits exponent, const void* data, std::size_t count) {
  const hn::ScalableTag<Bits> d;
  const std::size_t n = hn::Lanes(d), vector = n * sizeof(Bits);
  const auto* from = static_cast<const std::byte*>(data);
  const auto wanted = hn::Set(d, exponent);
  const auto found = [&](const std::byte* at) HWY_ATTR { return hn::Eq(hn::And(load(d, at), wanted), wanted); };
  std::size_t i = 0;
  for (; count - i >= 4 * n; i += 4 * n) {
    const std::byte* at = from + i * sizeof(Bits);
    const auto either = hn::Or(found(at), found(at + vector));
    const auto other = hn::Or(found(at + 2 * vector), found(at + 3 * vector));
    if (!hn::AllFalse(d, hn::Or(either, other))) break;
  }
  for (; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, from + i * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) == exponent) return i;
  }
  return count;
}

std::size_t not_finite(DType dtype, const void* data, std::size_t count) {
  switch (dtype) {
    case DType::f16: return find_exponent<std::uint16_t>(F16::infinity, data, count);
    case DType::bf16: return find_exponent<std::uint16_t>(Bf16::infinity, data, count);
    case DType::f32: return find_exponent<std::uint32_t>(0x7f800000, data, count);
    default: return find_exponent<std::uint64_t>(0x7ff0000000000000, data, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradsync::kernels {
HWY_EXPORT(scale_array);
HWY_EXPORT(squares);
HWY_EXPORT(not_finite);

void scale(DType dtype, void* data, std::size_t count, double factor) {
  GRADSYNC_CHECK(is_floating(dtype));
  const DefaultFloatMode mode;
  if (count != 0) HWY_DYNAMIC_DISPATCH(scale_array)(dtype, data, count, factor);
}

double sum_of_squares(DType dtype, const void* data, std::size_t count) {
  GRADSYNC_CHECK(is_floating(dtype));
  const DefaultFloatMode mode;
  return HWY_DYNAMIC_DISPATCH(squares)(dtype, data, count);
}

std::size_t first_not_finite(DType dtype, const void* data, std::size_t count) {
  GRADSYNC_CHECK(is_floating(dtype));
  return HWY_DYNAMIC_DISPATCH(not_finite)(dtype, data, count);
}
}  // namespace gradsync::kernels
#endif
