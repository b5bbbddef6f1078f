#include "comm/acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "comm/probe.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

enum : std::uint64_t { kTcp = 1, kLocal = 2, kWake = 3, kWatch = 4 };
constexpr int kTickMilliseconds = 10'000;      // parked streams expire with this grain; idle costs nothing
constexpr int kNoDescriptorMilliseconds = 20;  // pause before accepting again when none was free
constexpr int kEventsMax = 64;

}  // namespace

Result<std::shared_ptr<Endpoint::Acceptor>> Endpoint::Acceptor::create(
    Descriptor tcp, Descriptor local, std::shared_ptr<MailRoom> room,
    std::shared_ptr<std::atomic<std::uint64_t>> strangers) {
  std::shared_ptr<Acceptor> acceptor(new Acceptor);
  acceptor->tcp_ = std::move(tcp);
  acceptor->local_ = std::move(local);
  acceptor->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  acceptor->wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  acceptor->room_ = std::move(room);
  acceptor->strangers_ = std::move(strangers);
  if (!acceptor->epoll_ || !acceptor->wake_ || !acceptor->add_to_epoll(acceptor->tcp_.get(), kTcp) ||
      !acceptor->add_to_epoll(acceptor->local_.get(), kLocal) || !acceptor->add_to_epoll(acceptor->wake_.get(), kWake))
    return failure(ErrorCode::unavailable, "cannot watch the endpoint's sockets: {}", errno_text(errno));
  return acceptor;
}

bool Endpoint::Acceptor::add_to_epoll(int descriptor, std::uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Endpoint::Acceptor::stop() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Endpoint::Acceptor::watch(std::unique_ptr<LossWatch> watch) {
  {
    const std::lock_guard lock(watch_mutex_);
    watch_ = std::move(watch);
    watch_new_ = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Endpoint::Acceptor::abandon() { watch_.reset(); }

void Endpoint::Acceptor::serve() {
  while (!stopping_.load()) wait_and_handle();
  const std::lock_guard lock(watch_mutex_);
  if (watch_) watch_->say_goodbye();
  watch_.reset();
  pending_.clear();
}

void Endpoint::Acceptor::wait_and_handle() {
  int wait = accepting_paused_ ? kNoDescriptorMilliseconds : kTickMilliseconds;
  if (!pending_.empty()) wait = std::min(wait, pending_.front()->until.poll_milliseconds());
  epoll_event events[kEventsMax];
  const int count = ::epoll_wait(epoll_.get(), events, kEventsMax, wait);
  if (accepting_paused_) {
    accepting_paused_ = false;
    add_to_epoll(tcp_.get(), kTcp);
    add_to_epoll(local_.get(), kLocal);
  }
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kTcp) accept_all(tcp_, false);
    else if (id == kLocal) accept_all(local_, true);
    else if (id == kWatch || id == kWake) poll_watch();
    else advance(id);
  }
  expire(std::chrono::steady_clock::now());
}

void Endpoint::Acceptor::accept_all(const Descriptor& listener, bool local) {
  for (int taken = 0; taken < kEventsMax; ++taken) {
    Descriptor socket = accept_from(listener);
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        drop_oldest();
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, tcp_.get(), nullptr);
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, local_.get(), nullptr);
        accepting_paused_ = true;
      }
      return;
    }
    if (local && !peer_is_our_user(socket.get())) {
      strangers_->fetch_add(1);
      continue;
    }
    const int on = 1;
    if (!local) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (pending_.size() >= limits::handshakes_pending_max) drop_oldest();
    auto pending = std::make_unique<Pending>();
    pending->id = next_id_++;
    pending->local = local;
    pending->until = Deadline::after(limits::handshake_timeout);
    pending->socket = std::move(socket);
    const std::uint64_t id = pending->id;
    add_to_epoll(pending->socket.get(), id);
    by_id_[id] = pending_.insert(pending_.end(), std::move(pending));
    advance(id);  // the handshake is often there already
  }
}

void Endpoint::Acceptor::drop_oldest() {
  if (!pending_.empty()) remove(pending_.begin(), true);
}

void Endpoint::Acceptor::remove(Pendings::iterator at, bool stranger) {
  if (stranger) strangers_->fetch_add(1);
  by_id_.erase((*at)->id);
  pending_.erase(at);
}

void Endpoint::Acceptor::expire(TimePoint now) {
  while (!pending_.empty() && pending_.front()->until.passed(now)) drop_oldest();
  room_->expire(now);
}

void Endpoint::Acceptor::advance(std::uint64_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  const auto at = found->second;
  const Progress progress = read_more(**at);
  if (progress != Progress::wait) remove(at, progress == Progress::stranger);
}

Endpoint::Acceptor::Progress Endpoint::Acceptor::read_more(Pending& pending) {
  while (pending.got < pending.wanted) {
    const std::span<std::byte> room{pending.bytes.data() + pending.got, pending.wanted - pending.got};
    const long got = receive_some(pending.socket.get(), room, pending.memory);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Progress::wait;
    if (got <= 0) return Progress::stranger;
    pending.got += static_cast<std::size_t>(got);
    if (pending.got == kHelloBytes && pending.wanted == kHelloBytes) {
      const auto hello = decode_hello({pending.bytes.data(), kHelloBytes});
      if (!hello || hello->job != job_.load() || hello->job == 0) return Progress::stranger;
      pending.hello = *hello;
      pending.wanted += hello->payload_bytes;
    }
  }
  return finish(pending);
}

Endpoint::Acceptor::Progress Endpoint::Acceptor::finish(Pending& pending) {
  switch (pending.hello.kind) {
    case HelloKind::stream: return finish_stream(pending);
    case HelloKind::notice: return finish_notice(pending);
    case HelloKind::probe: break;
  }
  const std::span<const std::byte> payload{pending.bytes.data() + kHelloBytes, pending.hello.payload_bytes};
  const bool answered = pending.local && answer_probe(pending.socket.get(), pending.memory.get(), payload);
  return answered ? Progress::done : Progress::stranger;
}

Endpoint::Acceptor::Progress Endpoint::Acceptor::finish_stream(Pending& pending) {
  if (pending.local != static_cast<bool>(pending.memory)) return Progress::stranger;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.socket.get(), nullptr);
  Arrival arrival;
  arrival.kind = pending.local ? TransportKind::shm : TransportKind::tcp;
  arrival.from = pending.hello.from;
  arrival.channel = pending.hello.channel;
  arrival.lane = pending.hello.lane;
  arrival.lanes = pending.hello.lanes;
  arrival.socket = std::move(pending.socket);
  arrival.memory = std::move(pending.memory);
  const MailRoom::Key key{pending.hello.epoch, pending.hello.to};
  room_->deliver(key, std::move(arrival), std::chrono::steady_clock::now());
  return Progress::done;
}

Endpoint::Acceptor::Progress Endpoint::Acceptor::finish_notice(Pending& pending) {
  const auto status = decode_notice({pending.bytes.data() + kHelloBytes, pending.hello.payload_bytes});
  if (!status) return Progress::stranger;
  const MailRoom::Key key{pending.hello.epoch, pending.hello.to};
  room_->deliver(key, Notice{pending.hello.from, *status}, std::chrono::steady_clock::now());
  return Progress::done;
}

void Endpoint::Acceptor::poll_watch() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  const std::lock_guard lock(watch_mutex_);
  if (!watch_) return;
  if (std::exchange(watch_new_, false)) add_to_epoll(watch_->descriptor(), kWatch);
  std::vector<LossWatch::Loss> losses;
  const bool open = watch_->collect(losses);
  for (const LossWatch::Loss& loss : losses) room_->lose(loss.rank, loss.why);
  if (!open) watch_.reset();  // the store is gone, which after the start is nobody's failure
}

}  // namespace gradsync
