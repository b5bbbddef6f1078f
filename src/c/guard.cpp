#include "c/guard.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>

namespace gradsync::c {
namespace {

// Of fixed size: keeping a failure must not fail.
struct Failure {
  gradsync_code code = GRADSYNC_OK;
  int peer = -1;
  char message[2048] = "";

  void append(std::string_view text) {
    const std::size_t at = std::strlen(message), room = sizeof message - 1 - at, n = std::min(text.size(), room);
    std::memcpy(message + at, text.data(), n);
    message[at + n] = '\0';
  }
};
thread_local Failure last;

gradsync_code keep(ErrorCode code, int peer, std::string_view function, std::string_view message) noexcept {
  last.code = static_cast<gradsync_code>(code);
  last.peer = peer;
  last.message[0] = '\0';
  if (!function.empty()) {
    last.append(function);
    last.append(": ");
  }
  last.append(message);
  return last.code;
}

}  // namespace

gradsync_code remember_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return keep(refusal.status.code, refusal.status.peer, function, refusal.status.message);
  } catch (const Error& error) {
    return keep(error.code(), error.peer(), "", error.status().message);
  } catch (const std::bad_alloc&) {
    return keep(ErrorCode::out_of_memory, -1, function, "out of memory");
  } catch (const std::exception& exception) {
    return keep(ErrorCode::internal, -1, function, exception.what());
  } catch (...) { return keep(ErrorCode::internal, -1, function, "an exception of unknown type"); }
}

}  // namespace gradsync::c

extern "C" {

gradsync_code gradsync_error_code(void) { return gradsync::c::last.code; }
const char* gradsync_error_message(void) { return gradsync::c::last.message; }
int gradsync_error_peer(void) { return gradsync::c::last.peer; }

}  // extern "C"
