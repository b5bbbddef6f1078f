#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/limits.hpp"
#include "base/process.hpp"
#include "base/wire.hpp"
#include "transport/tcp.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kPiecesPerCall = 16;  // of one sendmsg, the header included

class Lane final : public Watcher {
 public:
  Lane(Dialer::Line line, bool framed)
      : socket_(std::move(line.socket)),
        greeting_(std::move(line.greeting)),
        framed_(framed) {
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!framed_) {
      end_ = ~std::uint64_t{0};
      return;
    }
    // A slow lane is full early instead of holding megabytes that the receiver waits for.
    const int unsent_max = static_cast<int>(limits::tcp_segment_bytes);
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof unsent_max);
  }

  Status watch(Poller& poller) { return poller.watch(socket_.get(), EPOLLOUT | EPOLLRDHUP | EPOLLET, *this); }

  void on_events(std::uint32_t events) override {
    if (events & EPOLLOUT) {
      writable_ = true;
      greet();
    }
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      lose(error != 0 ? error : EPIPE);
    }
  }

  bool writable() const { return writable_ && error_ == 0; }
  int error() const { return error_; }
  // A segment was begun and is not sent to its end; begin() is its next byte. Not framed: one endless segment.
  bool busy() const { return framed_ && begin_ < end_; }
  std::uint64_t begin() const { return begin_; }
  std::uint64_t sent_in_turn() const { return sent_in_turn_; }
  void new_turn() { sent_in_turn_ = 0; }

  void start(std::uint64_t begin, std::uint64_t end) {
    begin_ = begin, end_ = end;
    WireWriter out(header_);
    out.u64(begin), out.u32(static_cast<std::uint32_t>(end - begin)), out.u32(kSegmentMagic);
    header_left_ = kSegmentHeaderBytes;
  }
  // Sends what the connection takes of the segment; `from` stands at its next byte.
  void push(PieceCursor from) {
    if (!greet()) return;
    std::size_t left = static_cast<std::size_t>(std::min<std::uint64_t>(from.left(), end_ - begin_));
    while (left + header_left_ > 0) {
      std::array<iovec, kPiecesPerCall> parts;
      std::size_t count = 0;
      if (header_left_ > 0) parts[count++] = {header_.data() + kSegmentHeaderBytes - header_left_, header_left_};
      PieceCursor ahead = from;
      for (std::size_t more = left; more > 0 && count < parts.size();) {
        const auto stretch = ahead.stretch();
        const std::size_t bytes = std::min(more, stretch.size());
        parts[count++] = {const_cast<std::byte*>(stretch.data()), bytes};  // sendmsg does not write
        ahead.skip(bytes);
        more -= bytes;
      }
      const std::size_t sent = write({parts.data(), count});
      if (sent == 0) return;
      const std::size_t of_header = std::min<std::size_t>(sent, header_left_);
      header_left_ -= of_header;
      const std::size_t of_bytes = sent - of_header;
      from.skip(of_bytes);
      left -= of_bytes;
      begin_ += of_bytes;
      sent_in_turn_ += of_bytes;
    }
  }
  // Takes back a segment of which nothing went out; false if some did.
  bool cancel() {
    if (header_left_ < kSegmentHeaderBytes) return false;
    header_left_ = 0;
    end_ = begin_;
    return true;
  }
  // The orderly end, as far as it fits: nobody waits for it.
  void finish(std::uint64_t total) {
    if (!framed_ || busy() || header_left_ > 0 || error_ != 0) return;
    start(total, total);
    push(PieceCursor({}));
  }

 private:
  // Sends what is left of the greeting; true once nothing is.
  bool greet() {
    while (!greeting_.empty()) {
      iovec part{greeting_.data(), greeting_.size()};
      const std::size_t sent = write({&part, 1});
      if (sent == 0) return false;
      greeting_.erase(0, sent);
    }
    return true;
  }
  std::size_t write(std::span<iovec> parts) {
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t sent;
    do sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EINPROGRESS || errno == EALREADY) writable_ = false;
    else lose(errno);
    return 0;
  }
  void lose(int error) {
    if (error_ == 0) error_ = error;
  }

  Descriptor socket_;
  std::string greeting_;  // what of the handshake is not sent yet
  bool framed_, writable_ = true;
  int error_ = 0;
  std::uint64_t begin_ = 0, end_ = 0, sent_in_turn_ = 0;
  std::array<std::byte, kSegmentHeaderBytes> header_{};
  std::size_t header_left_ = 0;
};

class TcpOutgoing final : public Outgoing {
 public:
  TcpOutgoing(PeerName peer, Poller& poller) : peer_(std::move(peer)), poller_(poller) {}
  ~TcpOutgoing() override {
    if (taken_ == assigned_ && maker_.is_this())
      for (auto& lane : lanes_) lane->finish(assigned_);
  }

  Status add(Dialer::Line line, bool framed) {
    lanes_.push_back(std::make_unique<Lane>(std::move(line), framed));
    if (Status status = lanes_.back()->watch(poller_); !status.ok()) return status;
    lanes_.back()->push(PieceCursor({}));  // the greeting, if the connection stands already
    return {};
  }

  Result<std::size_t> send(Pieces pieces) override {
    if (!failure_.ok()) return failure_;
    const PieceCursor from(pieces);
    const std::uint64_t before = taken_;
    move(from);
    if (some_lane_is_full()) {
      if (taken_ == before) {
        poller_.collect();
        move(from);
      } else {
        poller_.collect_sometimes();
      }
    }
    if (!failure().ok() && taken_ == before) return failure_;
    return static_cast<std::size_t>(taken_ - before);
  }

  const Status& failure() override {
    for (auto& lane : lanes_)
      if (lane->error() != 0 && failure_.ok())
        failure_ = peer_.failed(code_of_socket_error(lane->error()), "send to", tcp_error_text(lane->error()));
    return failure_;
  }

 private:
  void move(const PieceCursor& from) {
    if (lanes_.size() == 1) send_plain(from);
    else send_framed(from);
  }
  bool some_lane_is_full() const {
    return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane->writable(); });
  }

  void send_plain(const PieceCursor& from) {
    Lane& lane = *lanes_[0];
    if (lane.writable()) lane.push(from);
    taken_ = lane.begin();
  }

  void send_framed(const PieceCursor& from) {
    const auto at = [&](std::uint64_t offset) {
      PieceCursor there = from;
      there.skip(static_cast<std::size_t>(offset - taken_));
      return there;
    };
    const std::uint64_t offered = taken_ + from.left();
    for (auto& lane : lanes_)
      if (lane->busy() && lane->writable() && lane->begin() <= offered) lane->push(at(lane->begin()));
    for (Lane* lane = next_free(); lane && assigned_ < offered; lane = next_free()) {
      const std::uint64_t end = std::min<std::uint64_t>(offered, assigned_ + limits::tcp_segment_bytes);
      lane->start(assigned_, end);
      lane->push(at(assigned_));
      if (lane->cancel()) continue;  // it was full: another lane's segment
      assigned_ = end;
    }
    taken_ = std::min(assigned_, offered);
    for (auto& lane : lanes_)
      if (lane->busy()) taken_ = std::min(taken_, lane->begin());
  }

  // The lane whose turn it is, or the next one that has room; nullptr if none has. A turn lasts for a segment's worth of
  // bytes, so that small messages follow each other on one lane.
  Lane* next_free() {
    for (std::size_t tried = 0; tried <= lanes_.size(); ++tried) {
      Lane& lane = *lanes_[turn_];
      if (!lane.busy() && lane.writable() && lane.sent_in_turn() < limits::tcp_segment_bytes) return &lane;
      lane.new_turn();
      turn_ = (turn_ + 1) % lanes_.size();
    }
    return nullptr;
  }

  PeerName peer_;
  Poller& poller_;
  MakingProcess maker_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t turn_ = 0;
  // Offsets in the stream: all before taken_ is in the kernel, all before assigned_ belongs to some lane's segment.
  std::uint64_t taken_ = 0, assigned_ = 0;
};

}  // namespace

Result<std::unique_ptr<Outgoing>> open_tcp(const Dialer::Call& call, PeerName peer, Dialer& dialer, Poller& poller) {
  auto stream = std::make_unique<TcpOutgoing>(peer, poller);
  for (std::uint32_t lane = 0; lane < call.lanes; ++lane) {
    Dialer::Call one = call;
    one.lane = lane;
    auto line = dialer.dial(one);
    if (!line.ok()) return peer.failed(line.status().code, "send to", line.status().message);
    if (Status status = stream->add(std::move(*line), call.lanes > 1); !status.ok()) return status;
  }
  return std::unique_ptr<Outgoing>(std::move(stream));
}

}  // namespace gradsync
