// While one lives, the thread's floating-point mode is the default: round to nearest even, subnormals count (no FTZ, no
// DAZ), traps masked. Training code often sets FTZ and DAZ; neither a reduction nor the choice of an algorithm may depend on
// which rank did. Costs a few cycles when nothing has to change. The compiler does not know that arithmetic depends on
// the mode: what is to run in it is a function of its own that is not inlined ([[gnu::noinline]]). Elsewhere than on x86-64 and AArch64 the mode is left as it is.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradsync {

class DefaultFloatMode {
 public:
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

#if defined(__x86_64__)
  DefaultFloatMode() : saved_(_mm_getcsr()), changed_((saved_ & ~kStickyFlags) != kDefault) {
    if (changed_) _mm_setcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (changed_) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kStickyFlags = 0x3f;  // MXCSR bits 0 to 5; Intel SDM volume 1, 10.2.3
  static constexpr unsigned kDefault = 0x1f80;    // all exceptions masked, nearest even
  unsigned saved_;
  bool changed_;
#elif defined(__aarch64__)
  DefaultFloatMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_)::"memory");
    if (saved_ != 0) asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{0}) : "memory");
  }
  ~DefaultFloatMode() {
    if (saved_ != 0) asm volatile("msr fpcr, %0" ::"r"(saved_) : "memory");
  }

 private:
  std::uint64_t saved_ = 0;
#else
  DefaultFloatMode() = default;
  ~DefaultFloatMode() {}
#endif
};

}  // namespace gradsync
