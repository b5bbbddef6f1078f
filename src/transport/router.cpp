#include "transport/router.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <map>

#include "base/process.hpp"
#include "transport/board.hpp"
#include "transport/landing.hpp"
#include "transport/peer_table.hpp"
#include "transport/ring.hpp"
#include "transport/shm.hpp"
#include "transport/tcp.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kBoardMemory = ~std::uint64_t{0};  // the number of a rank's board among its pages

// What a rank opened and sent before it left may still be on its way through our endpoint when its other streams break.
constexpr auto kLateArrival = std::chrono::milliseconds(100);

// A stream that could not be opened.
class Failed final : public Outgoing {
 public:
  explicit Failed(Status status) { failure_ = std::move(status); }
  Result<std::size_t> send(Pieces) override { return failure_; }
};

// One that came and could not be taken, for want of memory or descriptors here.
class FailedArrival final : public Incoming {
 public:
  explicit FailedArrival(Status status) { failure_ = std::move(status); }
  Result<std::span<const std::byte>> peek(std::size_t) override { return failure_; }
  bool consume(std::size_t) override { return true; }
  Result<std::size_t> receive(std::span<std::byte>) override { return failure_; }
};

class Router final : public Transport, private Watcher {
 public:
  Router(TransportConfig config, std::shared_ptr<Dialer> dialer, std::shared_ptr<Inbox> inbox, Poller poller)
      : config_(std::move(config)),
        dialer_(std::move(dialer)),
        inbox_(std::move(inbox)),
        poller_(std::move(poller)),
        outgoing_(config_.size),
        incoming_(config_.size) {}

  Status watch_inbox() { return poller_.watch(inbox_->descriptor(), EPOLLIN, *this); }

  TransportKind kind() const override;
  Result<std::size_t> send(Peer to, Pieces pieces) override;
  Result<std::span<const std::byte>> peek(Peer from, std::size_t at_least) override;
  bool consume(Peer from, std::size_t count) override;
  bool lends(Peer to, std::span<const std::byte> bytes) override;
  Result<std::optional<std::size_t>> lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) override;
  void withdraw() override;
  std::optional<Landing> offer_landing(Peer from, const LandingOffer& offer) override;
  void allow_landing(Peer from, std::uint64_t bytes) override;
  Result<std::optional<std::uint64_t>> landed(Peer from) override;
  void end_landing(Peer from) override;
  std::optional<std::uint64_t> sent_position(Peer to) override;
  std::optional<Landing> take_landing(Peer to, std::uint64_t position, std::uint64_t fingerprint) override;
  Result<std::span<std::byte>> begin_land(Peer to, std::uint64_t wanted, std::uint64_t ahead) override;
  void end_land(Peer to, std::size_t count) override;
  Result<std::size_t> receive(Peer from, std::span<std::byte> into) override;
  bool may_have_boards() const override {
    return config_.size <= limits::board_ranks_max && kind() == TransportKind::shm;
  }
  std::byte* own_board() override;
  bool show_board(std::uint32_t to) override;
  std::shared_ptr<std::byte> board_of(std::uint32_t from) override;
  std::optional<Shown> show(std::uint32_t to, std::span<const std::byte> bytes) override;
  std::byte* shown(std::uint32_t from, const Shown& where, std::uint64_t bytes) override;
  void take_away(std::span<std::byte> bytes) override;
  void ring(std::uint32_t to) override;
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override {
    for (const Sender& sender : senders_)
      if (sender.peer.channel == channel) out.push_back(sender.peer.rank);
  }
  bool remote(std::uint32_t rank) const override { return rank != config_.rank && kind_to(rank) == TransportKind::tcp; }
  void await(Peer from, std::uint64_t bytes) override;
  int descriptor() const override { return poller_.descriptor(); }
  bool arm() override;
  void disarm() override;
  std::string describe(std::uint32_t rank) const override {
    return fmt::format("{} ({})", dialer_->describe(rank), name_of(kind_to(rank)));
  }

 private:
  struct Sender {
    Peer peer;
    Incoming* stream = nullptr;
  };

  TransportKind kind_to(std::uint32_t rank) const {
    const bool near = config_.hosts[rank] == config_.hosts[config_.rank];
    return near && config_.kind != TransportKind::tcp ? TransportKind::shm : TransportKind::tcp;
  }
  PeerName name(std::uint32_t rank) const { return {rank, describe(rank)}; }
  template <class T>
  static auto* find(PeerTable<T>& table, Peer peer) {
    T* const slot = table.find(peer);
    return slot ? slot->get() : nullptr;
  }

  Outgoing* open(Peer to);
  Result<std::unique_ptr<Outgoing>> dial(Peer to);
  void open_own(Channel channel);
  void on_events(std::uint32_t) override;
  void take(Arrival arrival);
  bool acceptable(const Arrival& arrival) const;
  void add_sender(Peer from, std::unique_ptr<Incoming> stream);
  // Why the rank is known to be gone, from any of its streams: a process closes all at once. ok if it is not.
  Status gone(std::uint32_t rank);
  // The stream, or why there will never be one, or nullptr: the peer has not opened it yet.
  Result<Incoming*> stream_from(Peer from);

  TransportConfig config_;
  MakingProcess maker_;
  std::shared_ptr<Dialer> dialer_;
  std::shared_ptr<Inbox> inbox_;
  Poller poller_;
  const ShmSetup shm_{config_.ring_bytes, config_.pages, std::make_shared<MappedPages>()};
  PeerTable<std::unique_ptr<Outgoing>> outgoing_;
  PeerTable<std::unique_ptr<Incoming>> incoming_;
  std::vector<Outgoing*> receivers_;
  std::vector<Sender> senders_;
  // Ranks that left before they opened what we wait for; once the time for late arrivals is over, `arm` says so once.
  struct Gone {
    TimePoint since;
    bool announced = false;
  };
  std::map<std::uint32_t, Gone> gone_;
  bool somebody_is_leaving();
  std::shared_ptr<const Pages> board_;
  LastPages shown_;
  std::uint64_t news_looked_ = 0;
  std::uint32_t unopened_polls_ = 0;
  bool armed_ = false, warned_ = false;
};

TransportKind Router::kind() const {
  bool shm = false, tcp = false;
  for (std::uint32_t rank = 0; rank < config_.size; ++rank)
    if (rank != config_.rank) (kind_to(rank) == TransportKind::shm ? shm : tcp) = true;
  if (shm && tcp) return TransportKind::automatic;
  return shm ? TransportKind::shm : tcp ? TransportKind::tcp : kind_to(config_.rank);
}

Result<std::unique_ptr<Outgoing>> Router::dial(Peer to) {
  Dialer::Call call{.kind = kind_to(to.rank), .to = to.rank, .channel = to.channel};
  if (call.kind == TransportKind::shm) {
    auto stream = open_shm(call, name(to.rank), shm_, *dialer_, poller_);
    if (stream.ok() || stream.status().code != ErrorCode::out_of_memory) return stream;
    if (!std::exchange(warned_, true))
      fmt::print(stderr, "gradsync: warning: rank {} uses tcp inside the host: {}\n", config_.rank,
                 stream.status().message);
    call.kind = TransportKind::tcp;
  }
  call.lanes = config_.lanes;
  return open_tcp(call, name(to.rank), *dialer_, poller_);
}

Outgoing* Router::open(Peer to) {
  if (to.rank == config_.rank) {
    open_own(to.channel);
    return outgoing_[to].get();
  }
  auto opened = dial(to);
  auto& slot = outgoing_[to];
  slot = opened.ok() ? std::move(*opened) : std::make_unique<Failed>(opened.status());
  receivers_.push_back(slot.get());
  return slot.get();
}

void Router::open_own(Channel channel) {
  const Peer own{config_.rank, channel};
  auto ring = open_own_ring(name(config_.rank), config_.ring_bytes);
  if (!ring.ok()) {
    outgoing_[own] = std::make_unique<Failed>(ring.status());
    return;
  }
  outgoing_[own] = std::move(ring->outgoing);
  receivers_.push_back(outgoing_[own].get());
  add_sender(own, std::move(ring->incoming));
}

void Router::add_sender(Peer from, std::unique_ptr<Incoming> stream) {
  senders_.push_back({from, stream.get()});
  incoming_[from] = std::move(stream);
}

void Router::on_events(std::uint32_t) {
  for (Arrival arrival; inbox_->take(arrival); arrival = Arrival()) take(std::move(arrival));
}

bool Router::acceptable(const Arrival& arrival) const {
  if (arrival.from >= config_.size || arrival.from == config_.rank || !arrival.socket) return false;
  if (static_cast<std::size_t>(arrival.channel) >= kChannelCount) return false;
  // tcp from the same host is fine: the peer had no memory for a ring.
  if (arrival.kind == TransportKind::shm) return arrival.memory && kind_to(arrival.from) == TransportKind::shm;
  return arrival.kind == TransportKind::tcp && arrival.lanes >= 1 && arrival.lanes <= limits::lanes_max &&
         arrival.lane < arrival.lanes;
}

void Router::take(Arrival arrival) {
  if (!acceptable(arrival)) return;
  const Peer from{arrival.from, arrival.channel};
  if (Incoming* const stream = find(incoming_, from)) {
    if (arrival.kind == TransportKind::tcp) stream->add_lane(std::move(arrival));
    return;
  }
  auto stream = arrival.kind == TransportKind::shm ? accept_shm(std::move(arrival), name(from.rank), shm_, poller_)
                                                   : accept_tcp(std::move(arrival), name(from.rank), poller_);
  // One that is not sound is dropped: its sender sees its socket close.
  if (stream.ok()) add_sender(from, std::move(*stream));
  else if (stream.status().code != ErrorCode::protocol)
    add_sender(from, std::make_unique<FailedArrival>(stream.status()));
}

Result<std::size_t> Router::send(Peer to, Pieces pieces) {
  Outgoing* stream = find(outgoing_, to);
  if (!stream) stream = open(to);
  auto sent = stream->send(pieces);
  if (sent.ok() && *sent == 0)
    if (Status status = gone(to.rank); !status.ok()) return status;
  return sent;
}

Status Router::gone(std::uint32_t rank) {
  for (std::size_t channel = 0; channel < kChannelCount; ++channel) {
    const Peer peer{rank, static_cast<Channel>(channel)};
    Outgoing* const out = find(outgoing_, peer);
    if (out && out->failure().code == ErrorCode::peer_lost) return out->failure();
    Incoming* const in = find(incoming_, peer);
    if (in && in->failure().code == ErrorCode::peer_lost) return in->failure();
  }
  return {};
}

Result<Incoming*> Router::stream_from(Peer from) {
  if (Incoming* const stream = find(incoming_, from)) return stream;
  if (from.rank == config_.rank) return nullptr;
  if (++unopened_polls_ % 16 == 0) poller_.collect();
  if (Incoming* const stream = find(incoming_, from)) return stream;
  const Status status = gone(from.rank);
  if (status.ok()) return nullptr;
  const TimePoint now = std::chrono::steady_clock::now();
  if (now - gone_.try_emplace(from.rank, Gone{now, false}).first->second.since >= kLateArrival) return status;
  poller_.collect();
  return find(incoming_, from);
}

Result<std::span<const std::byte>> Router::peek(Peer from, std::size_t at_least) {
  if (Incoming* const stream = find(incoming_, from)) return stream->peek(at_least);
  auto stream = stream_from(from);
  if (!stream.ok()) return stream.status();
  if (!*stream) return std::span<const std::byte>();
  return (*stream)->peek(at_least);
}

bool Router::consume(Peer from, std::size_t count) {
  if (count == 0) return true;
  Incoming* const stream = find(incoming_, from);
  GRADSYNC_CHECK(stream != nullptr);
  return stream->consume(count);
}

bool Router::lends(Peer to, std::span<const std::byte> bytes) {
  if (kind_to(to.rank) != TransportKind::shm || to.rank == config_.rank) return false;
  Outgoing* const stream = find(outgoing_, to);
  return (stream ? stream : open(to))->lends(bytes);
}

Result<std::optional<std::size_t>> Router::lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) {
  if (kind_to(to.rank) != TransportKind::shm || to.rank == config_.rank) return std::optional<std::size_t>();
  Outgoing* stream = find(outgoing_, to);
  if (!stream) stream = open(to);
  auto lent = stream->lend(bytes, ready);
  if (!lent.ok() || !*lent || **lent == bytes.size()) return lent;
  const Status lost = gone(to.rank);
  if (lost.ok()) return lent;
  lent = stream->lend(bytes, ready);  // it may have read the rest and left in between
  return lent.ok() && *lent == bytes.size() ? lent : lost;
}

void Router::withdraw() {
  if (!maker_.is_this()) return;  // a forked child: its parent's loans go on
  for (Outgoing* stream : receivers_) stream->withdraw();
  for (const Sender& sender : senders_) sender.stream->withdraw();
}

std::optional<Transport::Landing> Router::offer_landing(Peer from, const LandingOffer& offer) {
  Incoming* const stream = find(incoming_, from);
  if (!stream) return std::nullopt;
  std::uint64_t after = LandingPlace::kNever;
  if (const auto sent = sent_position(from); sent && offer.same_memory_ahead) after = *sent + *offer.same_memory_ahead;
  return stream->offer_landing(offer, after);
}

void Router::allow_landing(Peer from, std::uint64_t bytes) { find(incoming_, from)->allow_landing(bytes); }
Result<std::optional<std::uint64_t>> Router::landed(Peer from) { return find(incoming_, from)->landed(); }
void Router::end_landing(Peer from) { find(incoming_, from)->end_landing(); }

// Of a stream that is not open: none.
std::optional<std::uint64_t> Router::sent_position(Peer to) {
  const Outgoing* const stream = find(outgoing_, to);
  return stream ? stream->position() : std::optional<std::uint64_t>(0);
}

std::optional<Transport::Landing> Router::take_landing(Peer to, std::uint64_t position, std::uint64_t fingerprint) {
  Outgoing* const stream = find(outgoing_, to);
  return stream ? stream->take_landing(position, fingerprint) : std::nullopt;
}

Result<std::span<std::byte>> Router::begin_land(Peer to, std::uint64_t wanted, std::uint64_t ahead) {
  const Incoming* const back = find(incoming_, to);
  auto place = find(outgoing_, to)->begin_land(wanted, back ? back->position() : 0, ahead);
  if (place.ok() && place->empty())
    if (Status status = gone(to.rank); !status.ok()) return status;
  return place;
}

void Router::end_land(Peer to, std::size_t count) { find(outgoing_, to)->end_land(count); }

Result<std::size_t> Router::receive(Peer from, std::span<std::byte> into) {
  if (Incoming* const stream = find(incoming_, from)) return stream->receive(into);
  auto stream = stream_from(from);
  if (!stream.ok()) return stream.status();
  if (!*stream) return std::size_t{0};
  return (*stream)->receive(into);
}

std::byte* Router::own_board() {
  if (board_) return board_->bytes().data();
  if (!may_have_boards()) return nullptr;
  auto pages = Pages::create(kBoardMemory, kBoardBytes, true);  // peers that are behind read on after we left
  if (!pages.ok()) return nullptr;
  board_ = std::move(*pages);
  BoardView::make(board_->bytes());
  return board_->bytes().data();
}

bool Router::show_board(std::uint32_t to) {
  const Peer peer{to, Channel::collective};
  Outgoing* const stream = find(outgoing_, peer);
  return board_ && (stream ? stream : open(peer))->show(board_);
}

std::shared_ptr<std::byte> Router::board_of(std::uint32_t from) {
  Incoming* const stream = find(incoming_, {from, Channel::collective});
  return stream ? stream->see(kBoardMemory, 0, kBoardBytes) : nullptr;
}

std::optional<Transport::Shown> Router::show(std::uint32_t to, std::span<const std::byte> bytes) {
  Outgoing* const stream = find(outgoing_, {to, Channel::collective});
  auto pages = stream && config_.pages ? config_.pages->find(bytes) : nullptr;
  if (!pages || !stream->show(pages)) return std::nullopt;
  shown_.add(pages);
  return Shown{pages->id(), static_cast<std::uint64_t>(bytes.data() - pages->bytes().data())};
}

std::byte* Router::shown(std::uint32_t from, const Shown& where, std::uint64_t bytes) {
  Incoming* const stream = find(incoming_, {from, Channel::collective});
  return stream ? stream->see(where.memory, where.offset, bytes).get() : nullptr;
}

void Router::take_away(std::span<std::byte> bytes) {
  if (const auto pages = shown_.find(bytes)) pages->replace(pages_around(bytes));
}

void Router::ring(std::uint32_t to) { find(outgoing_, Peer{to, Channel::collective})->ring(); }

void Router::await(Peer from, std::uint64_t bytes) {
  if (Incoming* const stream = find(incoming_, from)) stream->await(bytes);
}

// Nothing but time makes a rank that left count as lost: until then, and for one look after, nobody may sleep.
bool Router::somebody_is_leaving() {
  bool leaving = false;
  for (auto& [rank, gone] : gone_) {
    if (gone.announced) continue;
    leaving = true;
    gone.announced = std::chrono::steady_clock::now() - gone.since >= kLateArrival;
  }
  return leaving;
}

bool Router::arm() {
  armed_ = true;
  bool changed = somebody_is_leaving();
  for (const Sender& sender : senders_) changed |= sender.stream->arm();
  for (Outgoing* stream : receivers_) changed |= stream->arm();
  poller_.collect();
  changed |= std::exchange(news_looked_, poller_.news()) != poller_.news();
  return !changed;
}

void Router::disarm() {
  if (!std::exchange(armed_, false)) return;
  for (const Sender& sender : senders_) sender.stream->disarm();
  for (Outgoing* stream : receivers_) stream->disarm();
  poller_.collect();
  news_looked_ = poller_.news();  // who wakes looks at everything
}

Status check(const TransportConfig& config) {
  if (config.size == 0 || config.size > limits::ranks_max || config.rank >= config.size)
    return failure(ErrorCode::invalid_argument, "transport: rank {} of {}", config.rank, config.size);
  if (config.hosts.size() != config.size)
    return failure(ErrorCode::invalid_argument, "transport: hosts of {} ranks, expected {}", config.hosts.size(),
                   config.size);
  if (config.lanes == 0 || config.lanes > limits::lanes_max)
    return failure(ErrorCode::invalid_argument, "transport: {} lanes, expected 1 to {}", config.lanes,
                   limits::lanes_max);
  if (!ring_capacity_valid(config.ring_bytes))
    return failure(ErrorCode::invalid_argument, "transport: ring of {} bytes, expected a multiple of 64 from {} to {}",
                   config.ring_bytes, kRingBytesMin, kRingBytesMax);
  if (config.kind == TransportKind::loopback)
    return failure(ErrorCode::invalid_argument,
                   "transport: loopback is for the threads of one process, expected auto, shm or tcp");
  if (config.kind != TransportKind::shm) return {};
  constexpr std::size_t named_max = 8;
  std::string far;
  std::size_t count = 0;
  for (std::uint32_t rank = 0; rank < config.size; ++rank) {
    if (config.hosts[rank] == config.hosts[config.rank]) continue;
    if (++count <= named_max) far += fmt::format("{}{}", far.empty() ? "" : ", ", rank);
  }
  if (count > named_max) far += fmt::format(" and {} more", count - named_max);
  if (count == 0) return {};
  return failure(ErrorCode::invalid_argument, "transport shm: not on the host of rank {}: rank{} {}", config.rank,
                 count == 1 ? "" : "s", far);
}

}  // namespace

Result<std::unique_ptr<Transport>> open_transport(const TransportConfig& config, std::shared_ptr<Dialer> dialer,
                                                  std::shared_ptr<Inbox> inbox) {
  GRADSYNC_CHECK(dialer && inbox);
  if (Status status = check(config); !status.ok()) return status;
  auto poller = Poller::create();
  if (!poller.ok()) return poller.status();
  auto router = std::make_unique<Router>(config, std::move(dialer), std::move(inbox), std::move(*poller));
  if (Status status = router->watch_inbox(); !status.ok()) return status;
  return std::unique_ptr<Transport>(std::move(router));
}

}  // namespace gradsync
