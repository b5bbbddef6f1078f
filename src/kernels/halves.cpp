// f16 and bf16: min and max in their own representation, to f32, and from f32 with one rounding.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/halves.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/halves_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {

template <class Half>
HWY_INLINE void widen_array(const Conversion& arrays) {
  convert_array(F32(), U16(), arrays, [](VU16 v) HWY_ATTR { return canonical_nan(F32(), Half::widen(v)); });
}

template <class Half>
HWY_INLINE void narrow_array(std::uint64_t contributions, const Conversion& arrays) {
  if (contributions == 1)
    return convert_array(U16(), F32(), arrays, [](VF32 v) HWY_ATTR { return Half::narrow(canonical_nan(F32(), v)); });
  const VF32 n = hn::Set(F32(), static_cast<float>(contributions));
  convert_array(U16(), F32(), arrays,
                [n](VF32 v) HWY_ATTR { return Half::narrow(canonical_nan(F32(), divide_to_odd(v, n))); });
}

void widen(DType dtype, const Conversion& arrays) {
  dtype == DType::f16 ? widen_array<F16>(arrays) : widen_array<Bf16>(arrays);
}
void narrow(DType dtype, std::uint64_t contributions, const Conversion& arrays) {
  dtype == DType::f16 ? narrow_array<F16>(contributions, arrays) : narrow_array<Bf16>(contributions, arrays);
}

// Floats in sign and magnitude become integers of the same order, -0 below +0, and back: the map is its own inverse.
template <class Half, bool kLeast>
struct Extreme : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> first(D d, hn::Vec<D> v) const {
    return ordered(d, v);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> v) const {
    return ordered(d, v);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> step(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    hn::Vec<D> extreme;
    if constexpr (kLeast) extreme = hn::Min(a, b);
    else extreme = hn::Max(a, b);
    return hn::IfThenElse(hn::Or(is_nan(d, a), is_nan(d, b)), hn::Set(d, std::int16_t{Half::quiet_nan}), extreme);
  }

 private:
  template <class D>
  static HWY_INLINE hn::Vec<D> ordered(D d, hn::Vec<D> v) {
    return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), hn::Set(d, std::int16_t{0x7fff})));
  }
  template <class D>
  static HWY_INLINE hn::Mask<D> is_nan(D d, hn::Vec<D> v) {  // beyond the infinities in that order
    constexpr std::int16_t infinity = Half::infinity;
    return hn::Or(hn::Gt(v, hn::Set(d, infinity)), hn::Lt(v, hn::Set(d, static_cast<std::int16_t>(~infinity))));
  }
};

template <class Half>
void combine_half(ReduceOp op, const Streams& streams) {
  op == ReduceOp::min ? reduce_streams<std::int16_t>(Extreme<Half, true>{}, streams)
                      : reduce_streams<std::int16_t>(Extreme<Half, false>{}, streams);
}
void halves(Work work, ReduceOp op, const Streams& streams) {
  work == Work::f16 ? combine_half<F16>(op, streams) : combine_half<Bf16>(op, streams);
}

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradsync::kernels {
HWY_EXPORT(halves);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void combine_halves(Work work, ReduceOp op, const Streams& streams) { HWY_DYNAMIC_DISPATCH(halves)(work, op, streams); }
void widen_halves(DType dtype, const Conversion& arrays) { HWY_DYNAMIC_DISPATCH(widen)(dtype, arrays); }
void narrow_halves(DType dtype, std::uint64_t contributions, const Conversion& arrays) {
  HWY_DYNAMIC_DISPATCH(narrow)(dtype, contributions, arrays);
}
}  // namespace gradsync::kernels
#endif
