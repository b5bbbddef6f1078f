// What can go wrong, as a value (Status) and as an exception (Error).
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradsync {

enum class ErrorCode : std::uint8_t {
  ok,
  invalid_argument,  // the caller's arguments cannot be right; nothing was done
  mismatch,          // ranks called different things
  timeout,           // a deadline passed; names whom it waited for
  peer_lost,         // a peer's process or connection is gone
  aborted,           // abort() was called, here or on a peer
  out_of_memory,
  out_of_range,
  unsupported,  // known, but not available for this combination
  protocol,     // bytes that are not gradsync's, or of another version
  unavailable,  // a resource of the system could not be had (socket, interface, file)
  closed,       // use after destroy
  internal,     // a bug in gradsync
  not_finite,   // a NaN or an infinity, where the caller asked to look for them
};
inline constexpr std::size_t kErrorCodeCount = 14;

std::string_view name_of(ErrorCode code);

// A failure as a value. `message` is whole: it names the operation, its sequence number and the peer where known.
struct [[nodiscard]] Status {
  ErrorCode code = ErrorCode::ok;
  int peer = -1;  // the rank to blame or waited for, -1 if none
  std::string message;

  bool ok() const { return code == ErrorCode::ok; }
  explicit operator bool() const { return ok(); }
};

// What `Work::wait` and every blocking call throw.
class Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.message), status_(static_cast<Status&&>(status)) {}
  ErrorCode code() const { return status_.code; }
  int peer() const { return status_.peer; }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

}  // namespace gradsync
