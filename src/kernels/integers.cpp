// Combining integers and booleans. Sums, products and bitwise operations do not know the sign: they run on the unsigned
// type, where overflow wraps.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/integers.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/lanes_inl.hpp"

#include "base/status.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {

struct Sum : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Add(a, b);
  }
};
struct Min : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Min(a, b);
  }
};
struct Max : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Max(a, b);
  }
};
struct And : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::And(a, b);
  }
};
struct Or : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Or(a, b);
  }
};
struct Xor : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Xor(a, b);
  }
};

// 8 bits: no such instruction; the even and the odd bytes apart, in lanes of 16 bits.
template <class D>
HWY_INLINE hn::Vec<D> product_of_bytes(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::Repartition<std::uint16_t, D> wide;
  const auto x = hn::BitCast(wide, a), y = hn::BitCast(wide, b);
  const auto low = hn::And(hn::Mul(x, y), hn::Set(wide, std::uint16_t{0xff}));
  const auto high = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(x), hn::ShiftRight<8>(y)));
  return hn::BitCast(d, hn::Or(low, high));
}

// 64 bits from 32: (a1 B + a0)(b1 B + b0) = (a1 b0 + a0 b1) B + a0 b0, modulo B squared, B = 2^32.
template <class D>
HWY_INLINE hn::Vec<D> product_of_words(D, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::Repartition<std::uint32_t, D> half;
  const auto low = [&](auto v) HWY_ATTR { return hn::BitCast(half, v); };
  const auto high = [&](auto v) HWY_ATTR { return hn::BitCast(half, hn::ShiftRight<32>(v)); };
  const auto cross = hn::Add(hn::MulEven(high(a), low(b)), hn::MulEven(low(a), high(b)));
  return hn::Add(hn::MulEven(low(a), low(b)), hn::ShiftLeft<32>(cross));
}

struct Product : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    constexpr std::size_t size = sizeof(hn::TFromD<D>);
    constexpr bool emulated = HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128;
    constexpr bool avx512 = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;
    if constexpr (emulated || size == 4 || (avx512 && size == 8)) return hn::Mul(a, b);
    else if constexpr (size == 1) return product_of_bytes(d, a, b);
    else return product_of_words(d, a, b);
  }
};

// Booleans travel through an operation as 0x00 and 0xff.
template <class Bitwise>
struct Truth : Bitwise {
  template <class D>
  HWY_INLINE hn::Vec<D> first(D d, hn::Vec<D> v) const {
    return hn::VecFromMask(d, hn::Ne(v, hn::Zero(d)));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> v) const {
    return hn::And(v, hn::Set(d, std::uint8_t{1}));
  }
};

void combine_booleans(ReduceOp op, const Streams& streams) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bit_or: return reduce_streams<std::uint8_t>(Truth<Or>{}, streams);
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::bit_and: return reduce_streams<std::uint8_t>(Truth<And>{}, streams);
    case ReduceOp::bit_xor: return reduce_streams<std::uint8_t>(Truth<Xor>{}, streams);
    default: check_failed(__FILE__, __LINE__, "op is defined for booleans");
  }
}

// Any width is so many bytes.
template <class Bitwise>
void combine_bits(std::size_t size, Streams streams) {
  streams.count *= size;
  reduce_streams<std::uint8_t>(Bitwise{}, streams);
}

template <class Signed, class Unsigned>
void combine_integer(bool is_signed, ReduceOp op, const Streams& streams) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return reduce_streams<Unsigned>(Sum{}, streams);
    case ReduceOp::product: return reduce_streams<Unsigned>(Product{}, streams);
    case ReduceOp::min:
      return is_signed ? reduce_streams<Signed>(Min{}, streams) : reduce_streams<Unsigned>(Min{}, streams);
    case ReduceOp::max:
      return is_signed ? reduce_streams<Signed>(Max{}, streams) : reduce_streams<Unsigned>(Max{}, streams);
    case ReduceOp::bit_and: return combine_bits<And>(sizeof(Unsigned), streams);
    case ReduceOp::bit_or: return combine_bits<Or>(sizeof(Unsigned), streams);
    case ReduceOp::bit_xor: return combine_bits<Xor>(sizeof(Unsigned), streams);
  }
}

void integers(Work work, ReduceOp op, const Streams& streams) {
  switch (work) {
    case Work::i8:
    case Work::u8: return combine_integer<std::int8_t, std::uint8_t>(work == Work::i8, op, streams);
    case Work::i32:
    case Work::u32: return combine_integer<std::int32_t, std::uint32_t>(work == Work::i32, op, streams);
    case Work::i64:
    case Work::u64: return combine_integer<std::int64_t, std::uint64_t>(work == Work::i64, op, streams);
    case Work::boolean: return combine_booleans(op, streams);
    default: check_failed(__FILE__, __LINE__, "the type is an integer");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradsync::kernels {
HWY_EXPORT(integers);
void combine_integers(Work work, ReduceOp op, const Streams& streams) {
  HWY_DYNAMIC_DISPATCH(integers)(work, op, streams);
}
}  // namespace gradsync::kernels
#endif
