// Expected failures are values: Status (include/gradsync/error.hpp) and Result<T>.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "gradsync/error.hpp"

namespace gradsync {

// Formats the message of a failure: failure(ErrorCode::timeout, "recv from rank {}", 3).
template <class... Args>
[[nodiscard]] Status failure(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status{code, -1, fmt::format(format, std::forward<Args>(args)...)};
}

// The same, naming the peer to blame or waited for.
template <class... Args>
[[nodiscard]] Status peer_failure(ErrorCode code, int peer, fmt::format_string<Args...> format, Args&&... args) {
  return Status{code, peer, fmt::format(format, std::forward<Args>(args)...)};
}

// ": no such file or directory", worded as the system words errno, in lower case.
std::string errno_text(int error_number);

// Whose want a failed call on a socket shows: out_of_memory or unavailable where it is this process's (descriptors,
// memory, ports) or the network's (no way there), otherwise peer_lost.
ErrorCode code_of_socket_error(int error_number);

// A bug, not a failure: prints the place and aborts. Stays on in release.
[[noreturn]] inline void check_failed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "gradsync: bug: %s:%d: %s does not hold\n", file, line, what);
  std::abort();
}
#define GRADSYNC_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::gradsync::check_failed(__FILE__, __LINE__, #condition))

// Either a T or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { GRADSYNC_CHECK(!status_.ok()); }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& operator*() & {
    GRADSYNC_CHECK(ok());
    return *value_;
  }
  const T& operator*() const& {
    GRADSYNC_CHECK(ok());
    return *value_;
  }
  T&& operator*() && {
    GRADSYNC_CHECK(ok());
    return std::move(*value_);
  }
  T* operator->() {
    GRADSYNC_CHECK(ok());
    return &*value_;
  }
  const T* operator->() const {
    GRADSYNC_CHECK(ok());
    return &*value_;
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Throws the status as gradsync::Error unless it is ok.
inline void throw_if_failed(Status status) {
  if (!status.ok()) throw Error(std::move(status));
}

}  // namespace gradsync
