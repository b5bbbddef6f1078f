// Combining and dividing f32 and f64, and the choice of the instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/floats.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "kernels/lanes_inl.hpp"

#include "base/status.hpp"

HWY_BEFORE_NAMESPACE();
namespace gradsync::kernels {
namespace HWY_NAMESPACE {

// A NaN stays a NaN through further steps, so that one pass over the result makes it canonical.
struct FloatSum : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Add(a, b);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> v) const {
    return canonical_nan(d, v);
  }
};

struct FloatProduct : FloatSum {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Mul(a, b);
  }
};

// Of two equal operands or with a NaN, the machine's min returns one fixed operand (x86: the second). Asking in both
// orders and joining the bits gives -0 if either is.
template <bool kLeast>
struct FloatExtreme : Plain {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D d, hn::Vec<D> a, hn::Vec<D> b) const {
    hn::Vec<D> extreme;
    if constexpr (kLeast) extreme = hn::Or(hn::Min(a, b), hn::Min(b, a));
    else extreme = hn::And(hn::Max(a, b), hn::Max(b, a));
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), quiet_nan(d), extreme);
  }
};

template <class T>
struct Quotient : Plain {
  T divisor;
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D>) const {
    return a;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> last(D d, hn::Vec<D> v) const {
    return canonical_nan(d, hn::Div(v, hn::Set(d, divisor)));
  }
};

// The quotient of a sum: a NaN of the sum becomes canonical in the division's pass.
template <class T>
struct Mean : Quotient<T> {
  template <class D>
  HWY_INLINE hn::Vec<D> step(D, hn::Vec<D> a, hn::Vec<D> b) const {
    return hn::Add(a, b);
  }
};

template <class T>
void combine_float(ReduceOp op, const Streams& streams) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: return reduce_streams<T>(FloatSum{}, streams);
    case ReduceOp::product: return reduce_streams<T>(FloatProduct{}, streams);
    case ReduceOp::min: return reduce_streams<T>(FloatExtreme<true>{}, streams);
    case ReduceOp::max: return reduce_streams<T>(FloatExtreme<false>{}, streams);
    default: check_failed(__FILE__, __LINE__, "op is arithmetic");
  }
}

void floats(Work work, ReduceOp op, const Streams& streams) {
  work == Work::f32 ? combine_float<float>(op, streams) : combine_float<double>(op, streams);
}

template <class T>
void divide_float(std::uint64_t contributions, const Conversion& arrays) {
  Quotient<T> quotient;
  quotient.divisor = static_cast<T>(contributions);
  reduce_streams<T>(quotient, {arrays.into, &arrays.from, 1, arrays.count});
}

void divide(Work work, std::uint64_t contributions, const Conversion& arrays) {
  work == Work::f32 ? divide_float<float>(contributions, arrays) : divide_float<double>(contributions, arrays);
}

template <class T>
void add_and_divide_float(std::uint64_t contributions, const Streams& streams) {
  Mean<T> mean;
  mean.divisor = static_cast<T>(contributions);
  reduce_streams<T>(mean, streams);
}

void add_and_divide(Work work, std::uint64_t contributions, const Streams& streams) {
  work == Work::f32 ? add_and_divide_float<float>(contributions, streams)
                    : add_and_divide_float<double>(contributions, streams);
}

const char* own_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace gradsync::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradsync::kernels {
HWY_EXPORT(floats);
HWY_EXPORT(divide);
HWY_EXPORT(add_and_divide);
HWY_EXPORT(own_name);

void combine_floats(Work work, ReduceOp op, const Streams& streams) { HWY_DYNAMIC_DISPATCH(floats)(work, op, streams); }
void divide_floats(Work work, std::uint64_t contributions, const Conversion& arrays) {
  HWY_DYNAMIC_DISPATCH(divide)(work, contributions, arrays);
}
void add_and_divide_floats(Work work, std::uint64_t contributions, const Streams& streams) {
  HWY_DYNAMIC_DISPATCH(add_and_divide)(work, contributions, streams);
}

namespace {
// What was built and this machine can run. The baseline always runs, also where the library's own probe does not list it.
// Asked before any is forced, which changes what the library reports.
std::int64_t usable_targets() {
  static const std::int64_t targets = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  return targets;
}
}  // namespace

std::vector<std::string_view> compiled_instruction_sets() {
  std::vector<std::string_view> names;
  for (std::int64_t left = usable_targets(); left != 0; left &= left - 1)
    names.emplace_back(hwy::TargetName(left & -left));
  return names;
}

std::string_view chosen_instruction_set() { return HWY_DYNAMIC_DISPATCH(own_name)(); }

bool choose_instruction_set(std::string_view name) {
  for (std::int64_t left = usable_targets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    if (!name.empty() && name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(name.empty() ? 0 : target);
    return true;
  }
  return false;
}
}  // namespace gradsync::kernels
#endif
