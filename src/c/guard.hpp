// The border that no exception crosses, and the message that stays behind it.
#pragma once

#include <utility>

#include "base/status.hpp"
#include "gradsync/gradsync.h"

namespace gradsync::c {

// What this face itself finds wrong with a call. The guard puts the function's name before it; failures from further down
// name their operation already.
struct Refusal {
  Status status;
};
template <class... Args>
[[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{failure(code, format, std::forward<Args>(args)...)};
}
// The address `what` that the caller must have given.
inline void require(const void* address, const char* what) {
  if (address == nullptr) refuse(ErrorCode::invalid_argument, "{} is null", what);
}

// Keeps the exception under way as this thread's last failure.
gradsync_code remember_exception(const char* function) noexcept;

// Every function of gradsync.h that can fail: guarded(__func__, [&] { … }).
template <class Body>
gradsync_code guarded(const char* function, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return GRADSYNC_OK;
  } catch (...) { return remember_exception(function); }
}

}  // namespace gradsync::c
