// f16 and bf16 as vectors of f32 and back, once for each instruction set (see lanes_inl.hpp).
#if defined(GRADSYNC_KERNELS_HALVES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADSYNC_KERNELS_HALVES_INL
#undef GRADSYNC_KERNELS_HALVES_INL
#else
#define GRADSYNC_KERNELS_HALVES_INL
#endif

#include "kernels/lanes_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {

// Instructions for f16 <-> f32 (F16C, AVX-512, NEON of AArch64, SVE); elsewhere integer arithmetic.
#undef GRADSYNC_HAVE_F16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
#define GRADSYNC_HAVE_F16 (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
#else
#define GRADSYNC_HAVE_F16 0
#endif

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;  // as many lanes as F32, half the bytes
using VF32 = hn::Vec<F32>;
using VU32 = hn::Vec<U32>;
using VU16 = hn::Vec<U16>;

HWY_INLINE VU32 bits_of(VF32 v) { return hn::BitCast(U32(), v); }
HWY_INLINE VF32 float_of(VU32 bits) { return hn::BitCast(F32(), bits); }
HWY_INLINE VU32 word(std::uint32_t value) { return hn::Set(U32(), value); }
HWY_INLINE VU16 low_halves(VU32 v) { return hn::DemoteTo(U16(), hn::BitCast(I32(), v)); }  // v < 2^16

struct Bf16 {
  static constexpr std::uint16_t infinity = 0x7f80, quiet_nan = 0x7fc0;

  static HWY_INLINE VF32 widen(VU16 v) { return float_of(hn::ShiftLeft<16>(hn::PromoteTo(U32(), v))); }

  static HWY_INLINE VU16 narrow(VF32 v) {  // v is no NaN but the canonical one
    const VU32 bits = bits_of(v);
    const VU32 odd = hn::And(hn::ShiftRight<16>(bits), word(1));
    return low_halves(hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, word(0x7fff)))));
  }
};

struct F16 {
  static constexpr std::uint16_t infinity = 0x7c00, quiet_nan = 0x7e00;

#if GRADSYNC_HAVE_F16
  using Tag = hn::Rebind<hwy::float16_t, F32>;
  static HWY_INLINE VF32 widen(VU16 v) { return hn::PromoteTo(F32(), hn::BitCast(Tag(), v)); }
  static HWY_INLINE VU16 narrow(VF32 v) { return hn::BitCast(U16(), hn::DemoteTo(Tag(), v)); }
#else
  static HWY_INLINE VF32 widen(VU16 v) {
    const VU32 half = hn::PromoteTo(U32(), v);
    const VU32 sign = hn::ShiftLeft<16>(hn::And(half, word(0x8000)));
    const VU32 shifted = hn::ShiftLeft<13>(hn::And(half, word(0x7fff)));
    const VU32 exponent = hn::And(shifted, word(31u << 23));
    const VU32 normal = hn::Add(shifted, word((127u - 15) << 23));
    const VU32 special = hn::Add(shifted, word((255u - 31) << 23));
    // m 2^-24 = (2^-14 + m 2^-24) - 2^-14, exact, and no f32 subnormal on the way
    const VF32 least_normal = float_of(word((127u - 14) << 23));
    const VU32 subnormal = bits_of(hn::Sub(float_of(hn::Add(shifted, word((127u - 14) << 23))), least_normal));
    const auto is_special = hn::Eq(exponent, word(31u << 23));
    const auto is_subnormal = hn::Eq(exponent, word(0));
    return float_of(hn::Or(sign, hn::IfThenElse(is_special, special, hn::IfThenElse(is_subnormal, subnormal, normal))));
  }

  static HWY_INLINE VU16 narrow(VF32 v) {  // v is no NaN but the canonical one
    const VU32 bits = bits_of(v);
    const VU32 sign = hn::ShiftRight<16>(hn::And(bits, word(0x80000000)));
    const VU32 magnitude = hn::And(bits, word(0x7fffffff));
    const VU32 odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
    const VU32 rebased = hn::Sub(magnitude, word((127u - 15) << 23));
    const VU32 normal = hn::ShiftRight<13>(hn::Add(rebased, hn::Add(odd, word(0xfff))));
    // one unit in the last place of 0.5 is 2^-24, the f16 subnormals' step: the addition rounds
    const VU32 subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), hn::Set(F32(), 0.5f))), word(126u << 23));
    const VU32 finite = hn::IfThenElse(hn::Lt(magnitude, word((127u - 14) << 23)), subnormal, normal);
    const VU32 special = hn::IfThenElse(hn::Gt(magnitude, word(255u << 23)), word(quiet_nan), word(infinity));
    const VU32 half = hn::IfThenElse(hn::Lt(magnitude, word((127u + 16) << 23)), finite, special);
    return low_halves(hn::Or(sign, half));
  }
#endif
};

// a - q n, rounded once; all lanes of n are equal.
HWY_INLINE VF32 minus_product(VF32 a, VF32 q, VF32 n) {
#if HWY_NATIVE_FMA
  return hn::NegMulAdd(q, n, a);
#else
  const F32 d;
  alignas(64) float as[hn::MaxLanes(d)], qs[hn::MaxLanes(d)];
  hn::Store(a, d, as);
  hn::Store(q, d, qs);
  const double factor = hn::GetLane(n);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) as[i] = static_cast<float>(as[i] - qs[i] * factor);
  return hn::Load(d, as);
#endif
}

// q is a rounded value, r has the sign of what was lost (of the exact value minus q). The result is the value rounded to
// odd: an inexact one gets an odd last bit, so it is never a tie of the narrower format and the next rounding is the only
// one (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
HWY_INLINE VF32 to_odd(VF32 q, VF32 r) {
  const F32 d;
  const VF32 zero = hn::Zero(d);
  // false for NaN: q = ±inf or NaN stay
  const auto inexact = hn::RebindMask(U32(), hn::Or(hn::Lt(r, zero), hn::Gt(r, zero)));
  const VU32 bits = bits_of(q);
  const auto even = hn::Eq(hn::And(bits, word(1)), word(0));
  // The exact value is larger in magnitude than q if what was lost has q's sign.
  const auto outward = hn::Eq(hn::ShiftRight<31>(hn::Xor(bits_of(r), bits)), word(0));
  const VU32 nudged = hn::IfThenElse(outward, hn::Add(bits, word(1)), hn::Sub(bits, word(1)));
  return float_of(hn::IfThenElse(hn::And(inexact, even), nudged, bits));
}

// Exact: the remainder of a correctly rounded quotient by an integer of at most 24 bits is a float.
HWY_INLINE VF32 divide_to_odd(VF32 a, VF32 n) {
  const VF32 q = hn::Div(a, n);
  return to_odd(q, minus_product(a, q, n));
}

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#endif
