// The loops over arrays, once for each instruction set (see hwy/foreach_target.h; hence the toggling guard).
#if defined(GRADSYNC_KERNELS_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADSYNC_KERNELS_LANES_INL
#undef GRADSYNC_KERNELS_LANES_INL
#else
#define GRADSYNC_KERNELS_LANES_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/dispatch.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Unaligned by bytes, not just by elements; Highway's scalar vectors would dereference a T*.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
  T value;
  std::memcpy(&value, from, sizeof(T));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
#endif
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, std::byte* into) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  const T value = hn::GetLane(v);
  std::memcpy(into, &value, sizeof(T));
#else
  hn::StoreU(v, d, reinterpret_cast<T*>(into));
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> quiet_nan(D d) {
  const hn::RebindToUnsigned<D> bits;
  using Bits = hn::TFromD<decltype(bits)>;
  return hn::BitCast(d, hn::Set(bits, static_cast<Bits>(sizeof(Bits) == 4 ? 0x7fc00000u : 0x7ff8000000000000u)));
}

template <class D>
HWY_INLINE hn::Vec<D> canonical_nan(D d, hn::Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), quiet_nan(d), v);
}

// An operation on streams: out = last(step(step(first(a), first(b)), first(c))).
struct Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> first(D, hn::Vec<D> v) const {
    return v;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D, hn::Vec<D> v) const {
    return v;
  }
};

template <class D, class Op>
HWY_INLINE hn::Vec<D> reduce_at(D d, const Op& op, const Streams& s, std::size_t offset) {
  const auto at = [&](std::size_t k)
                      HWY_ATTR { return op.first(d, load(d, static_cast<const std::byte*>(s.from[k]) + offset)); };
  auto sum = at(0);
  for (std::size_t k = 1; k < s.ways; ++k) sum = op.step(d, sum, at(k));
  return op.last(d, sum);
}

// Where the results go: one place, or the same bytes in two.
struct OnePlace {
  std::byte* into;
  template <class D>
  HWY_INLINE void put(D d, hn::Vec<D> v, std::size_t offset) const {
    store(d, v, into + offset);
  }
  void put_bytes(const std::byte* bytes, std::size_t count, std::size_t offset) const {
    std::memcpy(into + offset, bytes, count);
  }
};
struct TwoPlaces {
  OnePlace one, other;
  template <class D>
  HWY_INLINE void put(D d, hn::Vec<D> v, std::size_t offset) const {
    one.put(d, v, offset);
    other.put(d, v, offset);
  }
  void put_bytes(const std::byte* bytes, std::size_t count, std::size_t offset) const {
    one.put_bytes(bytes, count, offset);
    other.put_bytes(bytes, count, offset);
  }
};

// The last elements, fewer than a vector, through a padded copy: same instructions, so same bits as the body.
template <class D, class Op, class Place>
HWY_INLINE void reduce_tail(D d, const Op& op, const Streams& s, const Place& place, std::size_t offset,
                            std::size_t bytes) {
  alignas(64) std::byte piece[hn::MaxLanes(d) * sizeof(hn::TFromD<D>)] = {};
  const auto at = [&](std::size_t k) HWY_ATTR {
    std::memcpy(piece, static_cast<const std::byte*>(s.from[k]) + offset, bytes);
    return op.first(d, load(d, piece));
  };
  auto sum = at(0);
  for (std::size_t k = 1; k < s.ways; ++k) sum = op.step(d, sum, at(k));
  store(d, op.last(d, sum), piece);
  place.put_bytes(piece, bytes, offset);
}

// Four vectors of every stream at a time, so that the accumulators stay in registers and each stream is read in runs of
// 256 bytes. All of a block is read before any of it is written, which is what lets a place be one of the streams.
template <class T, class Op, class Place>
HWY_NOINLINE void reduce_streams_into(const Place& place, const Op& op, const Streams& s) {
  const hn::ScalableTag<T> d;
  const std::size_t vector = hn::Lanes(d) * sizeof(T);
  const std::size_t bytes = s.count * sizeof(T);
  std::size_t offset = 0;
  for (; bytes - offset >= 4 * vector; offset += 4 * vector) {
    const auto at = [&](std::size_t k, std::size_t v) HWY_ATTR {
      return op.first(d, load(d, static_cast<const std::byte*>(s.from[k]) + offset + v * vector));
    };
    auto a = at(0, 0), b = at(0, 1), c = at(0, 2), e = at(0, 3);
    for (std::size_t k = 1; k < s.ways; ++k) {
      a = op.step(d, a, at(k, 0));
      b = op.step(d, b, at(k, 1));
      c = op.step(d, c, at(k, 2));
      e = op.step(d, e, at(k, 3));
    }
    place.put(d, op.last(d, a), offset);
    place.put(d, op.last(d, b), offset + vector);
    place.put(d, op.last(d, c), offset + 2 * vector);
    place.put(d, op.last(d, e), offset + 3 * vector);
  }
  for (; bytes - offset >= vector; offset += vector) place.put(d, reduce_at(d, op, s, offset), offset);
  if (offset < bytes) reduce_tail(d, op, s, place, offset, bytes - offset);
}

template <class T, class Op>
void reduce_streams(const Op& op, const Streams& s) {
  const OnePlace into{static_cast<std::byte*>(s.into)}, also{static_cast<std::byte*>(s.also)};
  if (s.also == nullptr) reduce_streams_into<T>(into, op, s);
  else reduce_streams_into<T>(TwoPlaces{into, also}, op, s);
}

// One vector of `From` elements to one of `To` elements by `convert(from vector)`, over arrays.
template <class To, class From, class Convert>
HWY_INLINE void convert_array(To to, From from, const Conversion& c, const Convert& convert) {
  using ToT = hn::TFromD<To>;
  using FromT = hn::TFromD<From>;
  const std::size_t lanes = hn::Lanes(to);
  const auto* source = static_cast<const std::byte*>(c.from);
  auto* target = static_cast<std::byte*>(c.into);
  std::size_t i = 0;
  for (; c.count - i >= lanes; i += lanes)
    store(to, convert(load(from, source + i * sizeof(FromT))), target + i * sizeof(ToT));
  if (i == c.count) return;
  alignas(64) std::byte in[hn::MaxLanes(from) * sizeof(FromT)] = {};
  alignas(64) std::byte out[hn::MaxLanes(to) * sizeof(ToT)];
  std::memcpy(in, source + i * sizeof(FromT), (c.count - i) * sizeof(FromT));
  store(to, convert(load(from, in)), out);
  std::memcpy(target + i * sizeof(ToT), out, (c.count - i) * sizeof(ToT));
}

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#endif
