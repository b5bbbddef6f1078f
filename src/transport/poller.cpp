#include "transport/poller.hpp"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace gradsync {

Result<Poller> Poller::create() {
  Poller poller;
  poller.set_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller.set_) return failure(ErrorCode::unavailable, "creating an epoll set: {}", errno_text(errno));
  return poller;
}

Status Poller::watch(int socket, std::uint32_t events, Watcher& watcher) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = &watcher;
  if (::epoll_ctl(set_.get(), EPOLL_CTL_ADD, socket, &event) != 0)
    return failure(ErrorCode::unavailable, "watching a socket: {}", errno_text(errno));
  return {};
}

void Poller::collect() {
  ++rounds_;
  std::array<epoll_event, 64> events;
  int count;
  do {
    count = ::epoll_wait(set_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) static_cast<Watcher*>(events[i].data.ptr)->on_events(events[i].events);
    if (count > 0) ++news_;
  } while (count == static_cast<int>(events.size()));
}

}  // namespace gradsync
