#include "base/own_sockets.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>
#include <vector>

namespace gradsync {
namespace {

struct OwnSockets {
  std::mutex mutex;  // held across a fork, and by whoever opens or closes one
  std::vector<bool> known;

  bool forget(int descriptor) {
    const auto at = static_cast<std::size_t>(descriptor);
    if (at >= known.size() || !known[at]) return false;
    known[at] = false;
    return true;
  }

  // In the child, alone, with the lock held. Only system calls: the heap may be locked for ever.
  void replace_all() {
    const int nothing = ::eventfd(0, EFD_CLOEXEC);
    for (std::size_t at = 0; at < known.size(); ++at) {
      const int descriptor = static_cast<int>(at);
      if (!forget(descriptor)) continue;
      // Without a descriptor to replace it, the number becomes free.
      if (nothing < 0 || ::dup3(nothing, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
    }
    if (nothing >= 0) ::close(nothing);
  }
};

// Never destroyed: sockets may be closed after the end of main.
OwnSockets& own_sockets() {
  static OwnSockets* const made = [] {
    auto* const sockets = new OwnSockets;
    // Fails only for want of memory, and then children keep the sockets.
    static_cast<void>(::pthread_atfork([] { own_sockets().mutex.lock(); }, [] { own_sockets().mutex.unlock(); },
                                       [] {
                                         own_sockets().replace_all();
                                         own_sockets().mutex.unlock();
                                       }));
    return sockets;
  }();
  return *made;
}

}  // namespace

WhileNobodyForks::WhileNobodyForks() { own_sockets().mutex.lock(); }
WhileNobodyForks::~WhileNobodyForks() { own_sockets().mutex.unlock(); }

Descriptor WhileNobodyForks::keep_from_children(int socket) {
  if (socket < 0) return {};
  std::vector<bool>& known = own_sockets().known;
  const auto at = static_cast<std::size_t>(socket);
  try {
    if (at >= known.size()) known.resize(at + 1);
  } catch (const std::bad_alloc&) {
    ::close(socket);
    errno = ENOMEM;
    return {};
  }
  known[at] = true;
  return Descriptor(socket);
}

void close_descriptor(int descriptor) {
  {
    const WhileNobodyForks turn;
    if (own_sockets().forget(descriptor)) {
      ::close(descriptor);
      return;
    }
  }
  ::close(descriptor);  // may take long: the last of large memory
}

}  // namespace gradsync
