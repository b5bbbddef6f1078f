#include "base/status.hpp"

#include <array>
#include <cctype>
#include <cerrno>
#include <system_error>

namespace gradsync {

std::string_view name_of(ErrorCode code) {
  static constexpr std::array<std::string_view, kErrorCodeCount> names = {
      "ok",           "invalid_argument", "mismatch", "timeout",     "peer_lost", "aborted",  "out_of_memory",
      "out_of_range", "unsupported",      "protocol", "unavailable", "closed",    "internal", "not_finite"};
  const auto index = static_cast<std::size_t>(code);
  return index < names.size() ? names[index] : "unknown";
}

ErrorCode code_of_socket_error(int error_number) {
  switch (error_number) {
    case ENOMEM:
    case ENOBUFS: return ErrorCode::out_of_memory;
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EADDRNOTAVAIL:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EACCES:
    case EPERM: return ErrorCode::unavailable;
    default: return ErrorCode::peer_lost;
  }
}

std::string errno_text(int error_number) {
  std::string text = std::generic_category().message(error_number);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace gradsync
