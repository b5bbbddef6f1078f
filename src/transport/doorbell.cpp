#include "transport/doorbell.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/wire.hpp"

namespace gradsync {
namespace {

constexpr std::uint8_t kWake = 1, kMemory = 2, kEndOfMemory = 3;
constexpr std::size_t kPassedMax = 8;  // a sound peer has one under way at most

// Takes one passed descriptor, if there is one.
void take_descriptor(msghdr& message, std::deque<Descriptor>& into) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
    into.emplace_back(descriptor);
  }
}

}  // namespace

Status Doorbell::watch(Poller& poller) { return poller.watch(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, *this); }

void Doorbell::ring() {
  if (!socket_) return;
  const std::uint8_t byte = kWake;
  ssize_t sent;
  do sent = ::send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  // EAGAIN: it is full of rings that were not heard yet, one more says nothing new.
  if (sent < 0 && errno != EAGAIN) lose(errno);
}

bool Doorbell::pass_memory(std::uint64_t id, int memory) { return say(kMemory, id, memory); }
bool Doorbell::pass_end_of_memory(std::uint64_t id) { return say(kEndOfMemory, id, -1); }

bool Doorbell::say(std::uint8_t what, std::uint64_t id, int memory) {
  if (!socket_ || broken_) return false;
  std::array<std::byte, kRecordBytes> record;
  WireWriter wire(record);
  wire.u8(what);
  wire.u64(id);
  iovec part{record.data(), record.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  if (memory >= 0) {
    message.msg_control = control.data(), message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  ssize_t sent;
  do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(record.size())) return true;
  // So few bytes go whole or not at all. ETOOMANYREFS: too many descriptors of this user are on their way.
  if (sent >= 0) lose(EPROTO);
  else if (errno != EAGAIN && errno != ETOOMANYREFS && errno != ENOMEM && errno != ENOBUFS) lose(errno);
  return false;
}

void Doorbell::on_events(std::uint32_t) {
  std::array<std::byte, 256> bytes;
  while (socket_ && !broken_) {
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part, message.msg_iovlen = 1;
    message.msg_control = control.data(), message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return lose(got == 0 ? 0 : errno);
    if (taker_ == nullptr) continue;
    take_descriptor(message, passed_);
    if (passed_.size() > kPassedMax) return lose(EPROTO);
    read(std::span(bytes).first(static_cast<std::size_t>(got)));
  }
}

void Doorbell::read(std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    if (record_bytes_ == 0 && byte != std::byte{kMemory} && byte != std::byte{kEndOfMemory}) continue;
    record_[record_bytes_++] = byte;
    if (record_bytes_ == kRecordBytes) obey();
  }
}

void Doorbell::obey() {
  record_bytes_ = 0;
  WireReader wire(record_);
  const std::uint8_t what = wire.u8();
  const std::uint64_t id = wire.u64();
  if (what == kEndOfMemory) return taker_->drop_memory(id);
  Descriptor memory;  // none where this process had no descriptor left to receive it
  if (!passed_.empty()) {
    memory = std::move(passed_.front());
    passed_.pop_front();
  }
  taker_->take_memory(id, std::move(memory));
}

}  // namespace gradsync
