#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/limits.hpp"
#include "base/wire.hpp"
#include "transport/mapping.hpp"
#include "transport/ring.hpp"
#include "transport/tcp.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kEndless = ~std::uint64_t{0};

// The receiving end of one connection. It knows the part of the stream that its next payload bytes are.
class Lane final : public Watcher {
 public:
  Lane(Descriptor socket, bool framed) : socket_(std::move(socket)), framed_(framed) {
    if (!framed_) end_ = kEndless;
  }

  Status watch(Poller& poller) { return poller.watch(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLET, *this); }
  void on_events(std::uint32_t events) override {
    readable_ = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ending_ = true;
  }

  // Whether a read may find something though no event tells of it.
  bool quiet() const { return low_water_ > 1; }
  // From now on events tell of bytes only when so many are there, of ends and errors as ever. If they are there already, that
  // is an event (Linux 4.18); so is a window that can grow no further.
  void set_low_water(int bytes) {
    if (bytes == low_water_ || ended_) return;
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0) low_water_ = bytes;
  }

  // A read may find something. Once the connection ended that is so until the end itself is read.
  bool readable() const { return !ended_ && (readable_ || ending_); }
  void try_again() { readable_ = true; }
  bool ended() const { return ended_; }
  bool inside_segment() const { return begin_ < end_; }
  bool broken() const { return ended_ && (error_ != 0 || header_got_ > 0 || (framed_ && inside_segment())); }
  int error() const { return error_; }
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }

  // Reads the next segment's header, as far as it is there; true when it is whole.
  bool read_header() {
    while (header_got_ < kSegmentHeaderBytes) {
      iovec part{header_.data() + header_got_, kSegmentHeaderBytes - header_got_};
      const std::size_t got = read({&part, 1});
      if (got == 0) return false;
      header_got_ += got;
    }
    header_got_ = 0;
    return true;
  }
  struct Segment {
    std::uint64_t offset;
    std::uint32_t length, magic;
  };
  Segment parse_header() const {
    WireReader in(header_);
    Segment segment{};
    segment.offset = in.u64(), segment.length = in.u32(), segment.magic = in.u32();
    return segment;
  }
  void start(const Segment& segment) { begin_ = segment.offset, end_ = segment.offset + segment.length; }

  // Reads payload of the segment into up to two places.
  std::size_t read_payload(std::span<std::byte> first, std::span<std::byte> second) {
    const std::uint64_t left = end_ - begin_;
    if (first.size() > left) first = first.first(static_cast<std::size_t>(left));
    if (second.size() > left - first.size()) second = second.first(static_cast<std::size_t>(left - first.size()));
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    for (auto part : {first, second})
      if (!part.empty()) parts[count++] = {part.data(), part.size()};
    const std::size_t got = read({parts.data(), count});
    begin_ += got;
    return got;
  }

 private:
  std::size_t read(std::span<iovec> parts) {
    std::size_t wanted = 0;
    for (const iovec& part : parts) wanted += part.iov_len;
    if (wanted == 0 || ended_) return 0;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t got;
    do got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
      if (static_cast<std::size_t>(got) < wanted) readable_ = false;  // drained; what comes later is a new edge
      return static_cast<std::size_t>(got);
    }
    readable_ = false;
    if (got < 0 && errno == EAGAIN) return ending_ = false, 0;
    ended_ = true;
    error_ = got == 0 ? 0 : errno;
    return 0;
  }

  Descriptor socket_;
  bool framed_, readable_ = true, ending_ = false, ended_ = false;
  int error_ = 0, low_water_ = 1;
  std::uint64_t begin_ = 0, end_ = 0;  // offsets in the stream of the current segment's unread payload
  std::array<std::byte, kSegmentHeaderBytes> header_{};
  std::size_t header_got_ = 0;
};

// Bytes that were read from the lanes and not consumed, always in one stretch.
class ReceiveBuffer {
 public:
  std::span<std::byte> unread() { return memory_.subspan(begin_, end_ - begin_); }
  std::size_t size() const { return end_ - begin_; }
  // False if there is no memory for it.
  bool usable() {
    if (memory_.empty()) {
      Result<Mapping> pages = Mapping::anonymous(limits::tcp_receive_bytes);
      if (!pages) return false;
      pages_ = *std::move(pages);
      memory_ = pages_.bytes();
    }
    return true;
  }
  // Room for up to `bytes` more, in a usable buffer. Moves what is unread to the front, so that is to be little.
  std::span<std::byte> room(std::size_t bytes) {
    if (begin_ > 0) {
      std::memmove(memory_.data(), memory_.data() + begin_, size());
      end_ -= begin_;
      begin_ = 0;
    }
    return memory_.subspan(end_, std::min(bytes, memory_.size() - end_));
  }
  void added(std::size_t bytes) { end_ += bytes; }
  void consume(std::size_t bytes) {
    GRADSYNC_CHECK(bytes <= size());
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }

 private:
  // limits::tcp_receive_bytes from the first use, pages of its own: the heap would keep them, in pieces, when streams end.
  Mapping pages_;
  std::span<std::byte> memory_;
  std::size_t begin_ = 0, end_ = 0;
};

class TcpIncoming final : public Incoming {
 public:
  TcpIncoming(PeerName peer, std::uint32_t lanes, Poller& poller)
      : peer_(std::move(peer)),
        poller_(poller),
        lanes_(lanes) {}

  bool add_lane(Arrival arrival) override {
    if (arrival.lanes != lanes_.size() || arrival.lane >= lanes_.size() || lanes_[arrival.lane]) return false;
    auto lane = std::make_unique<Lane>(std::move(arrival.socket), lanes_.size() > 1);
    if (Status status = lane->watch(poller_); !status.ok()) {
      if (failure_.ok()) failure_ = peer_.failed(status.code, kOperation, status.message);
      return true;
    }
    lanes_[arrival.lane] = std::move(lane);
    return true;
  }

  Result<std::span<const std::byte>> peek(std::size_t at_least) override {
    GRADSYNC_CHECK(at_least <= kPeekBytes);
    at_least = std::max<std::size_t>(at_least, 1);
    if (!buffer_.usable()) return no_memory();
    if (buffer_.size() < at_least && failure_.ok()) fill(at_least);
    if (buffer_.size() < at_least && !failure_.ok()) return failure_;
    return std::span<const std::byte>(buffer_.unread());
  }

  bool consume(std::size_t count) override {
    buffer_.consume(count);
    return true;
  }

  void await(std::uint64_t bytes) override { awaited_ = bytes; }
  // Of several lanes each has its own part of the bytes to come: none waits for the others'.
  bool arm() override {
    const std::uint64_t wanted = std::min<std::uint64_t>(std::exchange(awaited_, 1), limits::tcp_wake_bytes);
    if (lanes_.size() == 1 && lanes_[0])
      lanes_[0]->set_low_water(wanted > buffer_.size() ? static_cast<int>(wanted - buffer_.size()) : 1);
    return false;
  }

  Result<std::size_t> receive(std::span<std::byte> into) override {
    if (!buffer_.usable()) return no_memory();
    std::size_t moved = take_buffered(into);
    if (moved == into.size()) return moved;
    if (into.size() - moved < kDirectBytes) {
      if (failure_.ok()) fill(1);
      moved += take_buffered(into.subspan(moved));
    } else {
      if (failure_.ok()) look_for_news();
      appetite_ = kAppetiteMin;
      while (moved < into.size() && failure_.ok()) {
        // What follows in the stream, most likely the next header, comes along into the empty buffer.
        const std::size_t got = read(into.subspan(moved), buffer_.room(kAppetiteMin));
        if (got == 0) break;
        const std::size_t direct = std::min(got, into.size() - moved);
        buffer_.added(got - direct);
        moved += direct;
      }
    }
    if (moved == 0 && !failure_.ok()) return failure_;
    return moved;
  }

 private:
  static constexpr std::string_view kOperation = "receive from";
  static constexpr std::size_t kDirectBytes = 4096;  // shorter reads go through the buffer, many in one system call
  static constexpr std::size_t kAppetiteMin = 8192;

  Status no_memory() const {
    return peer_.failed(ErrorCode::out_of_memory, kOperation,
                        fmt::format("no memory for a buffer of {} bytes", limits::tcp_receive_bytes));
  }

  std::size_t take_buffered(std::span<std::byte> into) {
    const std::size_t count = std::min(into.size(), buffer_.size());
    if (count == 0) return 0;
    std::memcpy(into.data(), buffer_.unread().data(), count);
    buffer_.consume(count);
    return count;
  }

  void fill(std::size_t at_least) {
    look_for_news();
    while (buffer_.size() < at_least && failure_.ok()) {
      const auto room = buffer_.room(appetite_);
      const std::size_t got = read(room, {});
      if (got == 0) return;
      buffer_.added(got);
      // A reader that works in the buffer gets longer stretches; one that copies out is better served directly.
      if (got == room.size()) appetite_ = std::min(2 * appetite_, limits::tcp_receive_bytes);
    }
  }

  // Reads the stream's next bytes; 0 if none have arrived or the stream failed.
  std::size_t read(std::span<std::byte> first, std::span<std::byte> second) {
    while (Lane* lane = next_lane()) {
      const std::size_t got = lane->read_payload(first, second);
      position_ += got;
      if (got > 0) return got;
      if (!lane->readable()) break;
    }
    if (failure_.ok()) check_end();
    return 0;
  }

  // The lane that has the stream's next bytes, if its segment's header has arrived and bytes may be there.
  Lane* next_lane() {
    if (lanes_.size() == 1) return lanes_[0] && lanes_[0]->readable() ? lanes_[0].get() : nullptr;
    for (std::size_t tried = 0; tried < lanes_.size(); ++tried) {
      Lane* const lane = lanes_[head_].get();
      if (lane) {
        while (!lane->inside_segment() && lane->readable() && failure_.ok() && lane->read_header())
          begin_segment(*lane);
        if (!failure_.ok()) return nullptr;
        if (lane->inside_segment() && lane->begin() == position_) return lane->readable() ? lane : nullptr;
      }
      head_ = (head_ + 1) % lanes_.size();
    }
    return nullptr;
  }

  void begin_segment(Lane& lane) {
    const Lane::Segment segment = lane.parse_header();
    const std::uint64_t end = segment.offset + segment.length;
    bool sound = segment.magic == kSegmentMagic && segment.length <= limits::tcp_segment_bytes &&
                 segment.offset >= position_ && end >= segment.offset;
    for (auto& other : lanes_)
      if (other && other.get() != &lane && other->inside_segment() && segment.length > 0)
        sound = sound && (end <= other->begin() || segment.offset >= other->end());
    if (!sound) {
      failure_ = peer_.failed(
          ErrorCode::protocol, kOperation,
          fmt::format("segment of {} bytes at {} with magic {:#x}, expected at most {} bytes after {}", segment.length,
                      segment.offset, segment.magic, limits::tcp_segment_bytes, position_));
      return;
    }
    if (segment.length == 0) stream_end_ = segment.offset;
    else lane.start(segment);
  }

  // Nothing can be read now. Fails the stream if nothing will ever be.
  void check_end() {
    std::size_t here = 0, ended = 0;
    for (auto& lane : lanes_) {
      if (!lane) continue;
      if (lane->broken()) return fail(lane->error());
      ++here;
      ended += lane->ended();
    }
    if (here == 0 || ended < here) return;
    // In order: lanes that are still to be accepted may carry the rest.
    if (here < lanes_.size() && stream_end_ && *stream_end_ > position_) return;
    fail(0);
  }
  void fail(int error) { failure_ = peer_.failed(code_of_socket_error(error), kOperation, tcp_error_text(error)); }

  // Only the lane that has the stream's next bytes matters, or, if none is known to, those that may bring a header.
  bool something_to_read() const {
    bool header = false;
    for (auto& lane : lanes_) {
      if (!lane) continue;
      if (lane->inside_segment() && (lane->begin() == position_ || lanes_.size() == 1)) return lane->readable();
      header |= !lane->inside_segment() && lane->readable();
    }
    return header;
  }

  // Learns which lanes may be read, with at most one system call. A stream that is polled alone tries its connection
  // directly, which is the quickest; of several, the first that is polled a second time asks for all.
  void look_for_news() {
    if (something_to_read()) return;
    if (lanes_.size() == 1 && lanes_[0] && lanes_[0]->quiet()) return lanes_[0]->try_again();
    if (poller_.alone(this) && lanes_.size() == 1 && lanes_[0] && ++direct_ % 64 != 0) return lanes_[0]->try_again();
    if (round_ == poller_.rounds()) poller_.collect();
    round_ = poller_.rounds();
  }

  PeerName peer_;
  Poller& poller_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by lane number; empty until it arrived
  std::size_t head_ = 0;                      // the lane that had the last bytes
  std::uint64_t position_ = 0;                // in the stream, of the next byte to be read from a lane
  std::optional<std::uint64_t> stream_end_;
  ReceiveBuffer buffer_;
  std::size_t appetite_ = kAppetiteMin;
  std::uint64_t round_ = 0;
  std::uint32_t direct_ = 0;
  std::uint64_t awaited_ = 1;  // bytes that the next sleep is to wait for
};

}  // namespace

Result<std::unique_ptr<Incoming>> accept_tcp(Arrival arrival, PeerName peer, Poller& poller) {
  auto stream = std::make_unique<TcpIncoming>(std::move(peer), arrival.lanes, poller);
  GRADSYNC_CHECK(stream->add_lane(std::move(arrival)));
  if (!stream->failure().ok()) return stream->failure();
  return std::unique_ptr<Incoming>(std::move(stream));
}

}  // namespace gradsync
