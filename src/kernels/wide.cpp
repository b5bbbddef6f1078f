// The wide accumulators of avg over integers: i64 for up to 32 bits, 128 bits above. Plain loops; avg of integers is rare.
#include <concepts>
#include <cstring>

#include "base/status.hpp"
#include "kernels/dispatch.hpp"

namespace gradsync::kernels {
namespace {

__extension__ using I128 = __int128;
__extension__ using U128 = unsigned __int128;

template <class T>
T load(const void* from, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(void* into, std::size_t i, T value) {
  std::memcpy(static_cast<std::byte*>(into) + i * sizeof(T), &value, sizeof(T));
}

// Calls f(element, accumulator) with a zero of each type.
template <class F>
void with_types(DType dtype, F f) {
  switch (dtype) {
    case DType::i8: return f(std::int8_t{}, std::int64_t{});
    case DType::u8: return f(std::uint8_t{}, std::int64_t{});
    case DType::i32: return f(std::int32_t{}, std::int64_t{});
    case DType::u32: return f(std::uint32_t{}, std::int64_t{});
    case DType::i64: return f(std::int64_t{}, I128{});
    case DType::u64: return f(std::uint64_t{}, U128{});
    default: check_failed(__FILE__, __LINE__, "the type is an integer");
  }
}

// Truncates toward zero; by magnitude, as the divisor may exceed the accumulator's signed range.
template <class T>
T quotient(T sum, std::uint64_t divisor) {
  if constexpr (std::same_as<T, U128>) {
    return sum >> 64 == 0 ? static_cast<std::uint64_t>(sum) / divisor : sum / divisor;
  } else if constexpr (std::same_as<T, I128>) {
    const U128 magnitude = quotient<U128>(sum < 0 ? U128{0} - static_cast<U128>(sum) : static_cast<U128>(sum), divisor);
    return static_cast<T>(sum < 0 ? U128{0} - magnitude : magnitude);
  } else {
    const auto bits = static_cast<std::uint64_t>(sum);
    const std::uint64_t magnitude = (sum < 0 ? 0 - bits : bits) / divisor;
    return static_cast<T>(sum < 0 ? 0 - magnitude : magnitude);
  }
}

}  // namespace

void combine_wide(Work work, const Streams& streams) {
  GRADSYNC_CHECK(work == Work::i128 || work == Work::u128);  // two's complement: one addition for both
  for (std::size_t i = 0; i < streams.count; ++i) {
    U128 sum = load<U128>(streams.from[0], i);
    for (std::size_t k = 1; k < streams.ways; ++k) sum += load<U128>(streams.from[k], i);
    store(streams.into, i, sum);
    if (streams.also != nullptr) store(streams.also, i, sum);
  }
}

void widen_integers(DType dtype, const Conversion& arrays) {
  with_types(dtype, [&]<class T, class Sum>(T, Sum) {
    for (std::size_t i = 0; i < arrays.count; ++i) store<Sum>(arrays.into, i, load<T>(arrays.from, i));
  });
}

void divide_integers(DType dtype, std::uint64_t contributions, const Conversion& arrays) {
  with_types(dtype, [&]<class T, class Sum>(T, Sum) {
    for (std::size_t i = 0; i < arrays.count; ++i)
      store(arrays.into, i, static_cast<T>(quotient(load<Sum>(arrays.from, i), contributions)));
  });
}

}  // namespace gradsync::kernels
