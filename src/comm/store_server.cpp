#include "comm/store_server.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <list>
#include <unordered_map>

#include "base/clock.hpp"
#include "base/thread.hpp"
#include "comm/sockets.hpp"
#include "comm/store_rooms.hpp"

namespace gradsync {

using namespace store_protocol;

namespace {
enum : std::uint64_t { kListener = 1, kWake = 2, kFirstConnection = 16 };
constexpr int kTickMilliseconds = 10'000;
constexpr int kNoDescriptorMilliseconds = 20;  // pause before accepting again when none was free
constexpr int kEventsMax = 64;
constexpr std::size_t kReadBytes = 16u << 10;
constexpr int kReadsAtOnce = 16;  // of one connection, before the others have their turn
constexpr std::size_t kHelloFrameMax = kJobBytesMax + 64;
constexpr auto kDrainFor = std::chrono::milliseconds(500);  // at the end, for answers on their way
}  // namespace

// The thread's own.
class StoreServer::Loop {
 public:
  Loop(Descriptor listener, bool local, std::string job, std::shared_ptr<std::atomic<std::uint64_t>> strangers)
      : listener_(std::move(listener)),
        local_(local),
        rooms_(std::move(job), random_number),
        strangers_(std::move(strangers)) {
    watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    watch(EPOLL_CTL_ADD, wake_.get(), kWake, EPOLLIN);
  }
  bool usable() const { return epoll_ && wake_; }

  void serve() {
    while (!stopping_.load()) (void)turn(kTickMilliseconds);
    watch(EPOLL_CTL_DEL, wake_.get(), kWake, 0);
    const Deadline drained = Deadline::after(kDrainFor);
    listener_.reset();
    while (turn(0) > 0 && !drained.passed()) {  // what has been said already is still heard, and passed on
    }
    while (owes() && !drained.passed()) turn(drained.poll_milliseconds());
    connections_.clear();
  }
  void stop() {
    stopping_.store(true);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }

 private:
  enum class Phase { opening, hello, member };
  struct Connection {
    Descriptor socket;
    Phase phase = Phase::opening;
    Deadline until = Deadline::after(limits::handshake_timeout);  // of opening and hello
    std::string in;
    std::deque<Frame> out;
    std::size_t sent = 0;                      // of the first frame of out
    bool close = false;                        // once all is sent
    std::list<std::uint64_t>::iterator place;  // in pending_, until it is a member
  };

  void watch(int operation, int descriptor, std::uint64_t id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), operation, descriptor, &event);
  }

  int turn(int wait) {
    if (paused_) wait = std::min(wait, kNoDescriptorMilliseconds);
    if (!pending_.empty()) wait = std::min(wait, connections_.at(pending_.front()).until.poll_milliseconds());
    std::array<epoll_event, kEventsMax> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, wait);
    if (std::exchange(paused_, false) && listener_) watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kListener) accept_all();
      else if (event.data.u64 >= kFirstConnection) handle(event.data.u64, event.events);
    }
    const TimePoint now = std::chrono::steady_clock::now();
    while (!pending_.empty() && connections_.at(pending_.front()).until.passed(now)) drop(pending_.front());
    drop_broken();
    return count;
  }

  void accept_all() {
    for (int taken = 0; taken < kEventsMax; ++taken) {
      Descriptor socket = accept_from(listener_);
      if (!socket) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          if (!pending_.empty()) drop(pending_.front());
          watch(EPOLL_CTL_DEL, listener_.get(), kListener, 0);
          paused_ = true;
        }
        return;
      }
      const int on = 1;
      if (local_ && !peer_is_our_user(socket.get())) {
        strangers_->fetch_add(1);
        continue;
      }
      if (!local_) {
        ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      }
      if (pending_.size() >= limits::handshakes_pending_max) drop(pending_.front());
      const std::uint64_t id = next_++;
      Connection connection;
      connection.socket = std::move(socket);
      connection.place = pending_.insert(pending_.end(), id);
      watch(EPOLL_CTL_ADD, connection.socket.get(), id, EPOLLIN);
      connections_.emplace(id, std::move(connection));
    }
  }

  void handle(std::uint64_t id, std::uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    if ((events & EPOLLOUT) != 0 && !flush(id, found->second)) return drop(id);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !read(id, found->second)) drop(id);
  }

  // False: it is at its end.
  bool read(std::uint64_t id, Connection& connection) {
    std::array<char, kReadBytes> bytes;
    for (int reads = 0; reads < kReadsAtOnce; ++reads) {
      const ssize_t got = ::recv(connection.socket.get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
      if (got <= 0) return false;
      if (connection.close) continue;  // refused: what it still says is not heard
      connection.in.append(bytes.data(), static_cast<std::size_t>(got));
      if (!understand(id, connection)) return false;
    }
    return true;
  }

  bool understand(std::uint64_t id, Connection& connection) {
    if (connection.phase == Phase::opening) {
      const std::size_t length = std::min(connection.in.size(), kOpening.size());
      if (std::string_view(connection.in).substr(0, length) != kOpening.substr(0, length)) return false;
      if (length < kOpening.size()) return true;
      connection.in.erase(0, length);
      connection.phase = Phase::hello;
      connection.out.push_back(std::make_shared<const std::string>(kGreeting));
      if (!flush(id, connection)) return false;
    }
    for (;;) {
      bool bad = false;
      const auto cut =
          cut_frame(connection.in, connection.phase == Phase::member ? kRequestBytesMax : kHelloFrameMax, bad);
      if (!cut) return !bad;
      StoreRooms::Out out;
      const bool fine = answer(id, connection, *cut, out);
      deliver(out);
      if (!fine || connection.close) return fine;
    }
  }

  bool answer(std::uint64_t id, Connection& connection, const Cut& cut, StoreRooms::Out& out) {
    const auto type = static_cast<Request>(cut.type);
    if (connection.phase == Phase::member) return rooms_.request(id, type, cut.body, out);
    const auto hello = type == Request::hello ? decode_hello(cut.body) : std::nullopt;
    if (!hello) return false;
    rooms_.hello(id, *hello, out);
    for (const auto& outgoing : out)
      if (outgoing.to == id && outgoing.close) return true;  // turned away: has until its deadline to read why
    connection.phase = Phase::member;
    pending_.erase(connection.place);
    return true;
  }

  void deliver(const StoreRooms::Out& out) {
    for (const auto& outgoing : out) {
      const auto found = connections_.find(outgoing.to);
      if (found == connections_.end()) continue;
      found->second.out.push_back(outgoing.frame);
      if (outgoing.close) found->second.close = true;
      if (!flush(outgoing.to, found->second)) broken_.push_back(outgoing.to);
    }
  }

  bool flush(std::uint64_t id, Connection& connection) {
    while (!connection.out.empty()) {
      const std::string& first = *connection.out.front();
      const ssize_t sent =
          ::send(connection.socket.get(), first.data() + connection.sent, first.size() - connection.sent, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN)
        return watch(EPOLL_CTL_MOD, connection.socket.get(), id, EPOLLIN | EPOLLOUT), true;
      if (sent < 0) return false;
      connection.sent += static_cast<std::size_t>(sent);
      if (connection.sent == first.size()) connection.out.pop_front(), connection.sent = 0;
    }
    watch(EPOLL_CTL_MOD, connection.socket.get(), id, EPOLLIN);
    if (connection.close) ::shutdown(connection.socket.get(), SHUT_WR);  // its own end follows when it has read
    return true;
  }

  void drop(std::uint64_t id) {
    broken_.push_back(id);
    drop_broken();
  }

  // A departure is told to others, whose connections may turn out to be broken too.
  void drop_broken() {
    while (!broken_.empty()) {
      const std::uint64_t id = broken_.back();
      broken_.pop_back();
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      if (found->second.phase != Phase::member) {
        pending_.erase(found->second.place);
        strangers_->fetch_add(1);
      }
      connections_.erase(found);
      StoreRooms::Out out;
      rooms_.leave(id, out);
      deliver(out);
    }
  }

  bool owes() const {
    for (const auto& [id, connection] : connections_)
      if (!connection.out.empty()) return true;
    return false;
  }

  Descriptor listener_;
  bool local_;
  Descriptor epoll_{::epoll_create1(EPOLL_CLOEXEC)}, wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  StoreRooms rooms_;
  std::shared_ptr<std::atomic<std::uint64_t>> strangers_;
  std::atomic<bool> stopping_{false};
  bool paused_ = false;
  std::uint64_t next_ = kFirstConnection;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::list<std::uint64_t> pending_;  // not members yet, oldest first
  std::vector<std::uint64_t> broken_;
};

Result<std::unique_ptr<StoreServer>> StoreServer::serve(Descriptor listener, bool local, std::string job) {
  std::unique_ptr<StoreServer> server(new StoreServer);
  server->owner_ = ::getpid();
  server->strangers_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  if (local) server->name_ = local_abstract_name(listener.get());
  else server->address_ = local_address(listener.get());
  server->loop_ = std::make_shared<Loop>(std::move(listener), local, std::move(job), server->strangers_);
  if (!server->loop_->usable()) return failure(ErrorCode::unavailable, "store: {}", errno_text(errno));
  try {
    server->thread_ = std::make_unique<std::thread>(start_without_signals([loop = server->loop_] { loop->serve(); }));
  } catch (const std::system_error& error) {
    return failure(ErrorCode::unavailable, "cannot start the store's thread: {}", error.what());
  }
  return server;
}

Result<std::unique_ptr<StoreServer>> StoreServer::start(const Address& address, std::string job) {
  auto listener = listen_tcp(address, address.ipv6 && address.unspecified());
  if (!listener) return listener.status();
  return serve(std::move(*listener), false, std::move(job));
}

Result<std::unique_ptr<StoreServer>> StoreServer::start_abstract(const std::string& name, std::string job) {
  auto listener = listen_abstract(name);
  if (!listener) return listener.status();
  return serve(std::move(*listener), true, std::move(job));
}

StoreServer::~StoreServer() {
  if (::getpid() != owner_) {  // a forked child: there is no thread here
    [[maybe_unused]] auto* leaked = thread_.release();
    return;
  }
  if (!thread_) return;
  loop_->stop();
  thread_->join();
}

}  // namespace gradsync
