#include "comm/wake.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/status.hpp"

namespace gradsync {

Wake::Wake() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw_if_failed(failure(ErrorCode::unavailable, "eventfd: {}", errno_text(errno)));
}

void Wake::signal() const {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable already.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

void Wake::drain() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_.get(), &count, sizeof count);
}

}  // namespace gradsync
