#include "transport/loopback.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <vector>

#include "base/descriptor.hpp"
#include "base/limits.hpp"
#include "base/process.hpp"
#include "transport/board.hpp"
#include "transport/landing.hpp"
#include "transport/mapping.hpp"
#include "transport/peer_table.hpp"
#include "transport/ring.hpp"

namespace gradsync {
namespace {

struct Stream {
  std::uint32_t from = 0;
  Channel channel = Channel::collective;
  Mapping memory;
  std::shared_ptr<const Pages> lent = nullptr;  // the sender's to change; kept while the receiver may read it
};

// What the others see of a rank. The flags are written seldom and read at every send.
struct alignas(64) Place {
  std::atomic<bool> asleep{false}, gone{false}, taken{false};
  std::atomic<std::uint64_t> opened{0};          // streams ever opened to this rank
  Descriptor event;                              // set while `taken`, before any peer may see `asleep`
  alignas(64) std::mutex mutex;                  // of `arrived`
  std::vector<std::shared_ptr<Stream>> arrived;  // opened by a sender, not yet fetched by the rank
  std::shared_ptr<std::byte> board;              // by the rank itself, before it says a word of it
};

}  // namespace

class LoopbackFabric {
 public:
  LoopbackFabric(std::uint32_t size_, std::size_t ring_bytes_) : size(size_), ring_bytes(ring_bytes_), places(size_) {}

  void wake(std::uint32_t rank) {
    Place& place = places[rank];
    if (!place.asleep.load(std::memory_order_seq_cst) || !place.asleep.exchange(false)) return;
    const std::uint64_t one = 1;
    // Cannot fail: the counter cannot overflow as the rank clears it each time it wakes.
    [[maybe_unused]] const auto written = ::write(place.event.get(), &one, sizeof one);
  }

  const std::uint32_t size;
  const std::size_t ring_bytes;
  std::vector<Place> places;
  std::atomic<std::uint64_t> departed{0};  // ranks whose transport was destroyed
};

namespace {

class Loopback final : public Transport {
 public:
  Loopback(std::shared_ptr<LoopbackFabric> fabric, std::uint32_t rank, std::shared_ptr<PageRegistry> pages)
      : fabric_(std::move(fabric)),
        rank_(rank),
        pages_(std::move(pages)),
        place_(fabric_->places[rank]),
        outgoing_(fabric_->size),
        incoming_(fabric_->size) {}
  ~Loopback() override;

  TransportKind kind() const override { return TransportKind::loopback; }
  Result<std::size_t> send(Peer to, Pieces pieces) override;
  Result<std::span<const std::byte>> peek(Peer from, std::size_t at_least) override;
  bool consume(Peer from, std::size_t count) override;
  bool lends(Peer, std::span<const std::byte> bytes) override { return pages_ && pages_->find(bytes) != nullptr; }
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
  bool may_have_boards() const override { return fabric_->size <= limits::board_ranks_max; }
  std::byte* own_board() override;
  bool show_board(std::uint32_t) override { return place_.board != nullptr; }
  std::shared_ptr<std::byte> board_of(std::uint32_t from) override { return fabric_->places[from].board; }
  std::optional<Shown> show(std::uint32_t, std::span<const std::byte> bytes) override {
    auto pages = pages_ ? pages_->find(bytes) : nullptr;
    if (!pages) return std::nullopt;
    shown_.add(pages);
    return Shown{0, reinterpret_cast<std::uintptr_t>(bytes.data())};
  }
  std::byte* shown(std::uint32_t, const Shown& where, std::uint64_t) override {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(where.offset));
  }
  void take_away(std::span<std::byte> bytes) override {
    if (const auto pages = shown_.find(bytes)) pages->replace(pages_around(bytes));
  }
  void ring(std::uint32_t to) override { fabric_->wake(to); }
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override;
  int descriptor() const override { return place_.event.get(); }
  bool arm() override;
  void disarm() override;
  std::string describe(std::uint32_t rank) const override { return fmt::format("rank {} (loopback)", rank); }

 private:
  struct Outgoing {
    std::shared_ptr<Stream> stream;
    RingWriter ring;
    LandingSender landing;
    std::uint32_t to = 0;
    bool wants_room = false;  // the last send did not take everything
  };
  struct Incoming {
    std::shared_ptr<Stream> stream;
    RingReader ring;
    LandingReceiver landing;
    std::shared_ptr<const Pages> offered = nullptr;
    std::span<std::byte> place = {};
  };
  Outgoing* opened(Peer to) {
    auto* const slot = outgoing_.find(to);
    return slot ? slot->get() : nullptr;
  }

  Result<Outgoing*> open(Peer to);
  Result<Outgoing*> stream_to(Peer to);  // opened if it was not
  static bool borrow(Incoming& stream);
  Incoming* find(Peer from);  // nullptr: the peer has not opened the stream yet
  void fetch_arrived();
  Status lost(const char* what, std::uint32_t peer) const {
    return peer_failure(ErrorCode::peer_lost, static_cast<int>(peer),
                        "{} rank {} (loopback): its transport was destroyed", what, peer);
  }
  bool gone(std::uint32_t peer) const { return fabric_->places[peer].gone.load(std::memory_order_acquire); }

  std::shared_ptr<LoopbackFabric> fabric_;
  std::uint32_t rank_;
  std::shared_ptr<PageRegistry> pages_;
  MakingProcess maker_;
  Place& place_;
  LastPages shown_;
  PeerTable<std::unique_ptr<Outgoing>> outgoing_;
  PeerTable<std::unique_ptr<Incoming>> incoming_;
  std::vector<Outgoing*> outgoing_open_;
  std::vector<Incoming*> incoming_open_;
  std::uint64_t opened_fetched_ = 0, opened_looked_ = 0, departed_looked_ = 0;
};

Loopback::~Loopback() {
  if (!maker_.is_this()) return;  // the parent's ranks are not ours to wake, and its threads' locks stay locked here
  place_.gone.store(true, std::memory_order_seq_cst);
  place_.asleep.store(false, std::memory_order_seq_cst);
  fabric_->departed.fetch_add(1, std::memory_order_seq_cst);
  for (std::uint32_t peer = 0; peer < fabric_->size; ++peer)
    if (peer != rank_) fabric_->wake(peer);
  const std::lock_guard lock(place_.mutex);
  place_.arrived.clear();
}

Result<Loopback::Outgoing*> Loopback::open(Peer to) {
  auto memory = Mapping::anonymous(kRingHeaderBytes + fabric_->ring_bytes);
  if (!memory.ok()) return memory.status();
  auto& slot = outgoing_[to] = std::make_unique<Outgoing>();
  slot->stream = std::make_shared<Stream>(Stream{rank_, to.channel, std::move(*memory)});
  slot->landing = LandingSender(slot->stream->memory.bytes());
  slot->ring = RingWriter(slot->stream->memory.bytes());
  slot->to = to.rank;
  outgoing_open_.push_back(slot.get());
  Place& place = fabric_->places[to.rank];
  const std::lock_guard lock(place.mutex);
  place.arrived.push_back(slot->stream);
  place.opened.fetch_add(1, std::memory_order_seq_cst);
  return slot.get();
}

Result<Loopback::Outgoing*> Loopback::stream_to(Peer to) {
  auto* const slot = outgoing_.find(to);
  if (slot && *slot) return slot->get();
  return open(to);
}

Result<std::size_t> Loopback::send(Peer to, Pieces pieces) {
  if (gone(to.rank)) return lost("send to", to.rank);
  auto opened = stream_to(to);
  if (!opened.ok()) return opened.status();
  Outgoing* const stream = *opened;
  PieceCursor from(pieces);
  std::size_t taken = 0;
  while (from.left() > 0) {
    auto written = stream->ring.write(from);
    if (!written.ok()) return written.status();
    if (*written == 0) break;
    taken += *written;
    fabric_->wake(to.rank);
  }
  stream->wants_room = from.left() > 0;
  return taken;
}

// A pointer says it all: the receiver is a thread of this process.
Result<std::optional<std::size_t>> Loopback::lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) {
  const bool reader_gone = gone(to.rank);  // before its count is looked at: all that it ever read then shows
  auto opened = stream_to(to);
  if (!opened.ok()) return opened.status();
  Outgoing& stream = **opened;
  if (!stream.ring.lending()) {
    if (reader_gone) return lost("send to", to.rank);
    auto pages = pages_ ? pages_->find(bytes) : nullptr;
    if (!pages) return std::optional<std::size_t>();
    stream.stream->lent = std::move(pages);
    stream.ring.lend({0, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()});
  }
  if (stream.ring.loan_ready(ready)) fabric_->wake(to.rank);
  auto read = stream.ring.loan_read();
  if (!read.ok()) return read.status();
  if (!stream.ring.lending()) stream.stream->lent.reset();
  else if (reader_gone) return lost("send to", to.rank);
  return std::optional<std::size_t>(static_cast<std::size_t>(read->value()));
}

void Loopback::withdraw() {
  if (!maker_.is_this()) return;
  for (Outgoing* stream : outgoing_open_) {
    if (!stream->ring.lending()) continue;
    stream->ring.withdraw();
    fabric_->wake(stream->to);
  }
  for (Incoming* stream : incoming_open_) {
    const auto gone_now = [&] { return gone(stream->stream->from); };
    if (!stream->landing.withdraw(Deadline::after(limits::landing_withdraw_timeout), gone_now))
      stream->offered->replace(stream->place);
    stream->offered.reset();
  }
}

std::optional<Transport::Landing> Loopback::offer_landing(Peer from, const LandingOffer& offer) {
  Incoming* const stream = find(from);
  if (!stream || !pages_ || stream->landing.open() || gone(from.rank)) return std::nullopt;
  const std::span<std::byte> part = whole_pages(offer.payload);
  auto pages = part.size() >= limits::landing_bytes_min ? pages_->find(part) : nullptr;
  if (!pages) return std::nullopt;
  const auto skip = static_cast<std::uint64_t>(part.data() - offer.payload.data());
  std::uint64_t after = LandingPlace::kNever;
  if (const auto sent = sent_position(from); sent && offer.same_memory_ahead)
    after = *sent + *offer.same_memory_ahead + skip;
  stream->landing.offer({stream->ring.position() + offer.ahead, offer.fingerprint, 0,
                         reinterpret_cast<std::uintptr_t>(part.data()), skip, part.size(), after, 0});
  stream->offered = std::move(pages);
  stream->place = part;
  return Landing{skip, part.size()};
}

void Loopback::allow_landing(Peer from, std::uint64_t bytes) {
  if (find(from)->landing.allow(bytes)) fabric_->wake(from.rank);
}

Result<std::optional<std::uint64_t>> Loopback::landed(Peer from) {
  const bool sender_gone = gone(from.rank);
  Incoming& stream = *find(from);
  if (!stream.landing.accepted()) return end_landing(from), std::optional<std::uint64_t>();
  auto landed = stream.landing.landed();
  if (!landed.ok()) return landed.status();
  if (sender_gone && *landed < stream.place.size()) return lost("receive from", from.rank);
  return std::optional<std::uint64_t>(*landed);
}

void Loopback::end_landing(Peer from) {
  Incoming& stream = *find(from);
  stream.landing.end();
  stream.offered.reset();
}

std::optional<std::uint64_t> Loopback::sent_position(Peer to) {
  const Outgoing* const stream = opened(to);
  if (!stream) return 0;
  return stream->ring.lending() ? std::nullopt : std::optional(stream->ring.position());
}

std::optional<Transport::Landing> Loopback::take_landing(Peer to, std::uint64_t position, std::uint64_t fingerprint) {
  Outgoing* const stream = opened(to);
  const auto place = stream ? stream->landing.offered(position, fingerprint) : std::nullopt;
  if (!place) return std::nullopt;
  stream->landing.accept(*place, reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place->offset)));
  return Landing{place->skip, place->bytes};
}

Result<std::span<std::byte>> Loopback::begin_land(Peer to, std::uint64_t wanted, std::uint64_t ahead) {
  if (gone(to.rank)) return lost("send to", to.rank);
  const Incoming* const back = find(to);
  auto place = opened(to)->landing.begin_write(wanted, back ? back->ring.position() : 0, ahead);
  return place.ok() ? place : lost("send to", to.rank);
}

void Loopback::end_land(Peer to, std::size_t count) {
  opened(to)->landing.end_write(count);
  fabric_->wake(to.rank);
}

bool Loopback::borrow(Incoming& stream) {
  const auto loan = stream.ring.next_loan();
  if (!loan) return false;
  stream.ring.take_loan(*loan, reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(loan->offset)));
  return true;
}

void Loopback::fetch_arrived() {
  const std::lock_guard lock(place_.mutex);
  opened_fetched_ = place_.opened.load(std::memory_order_relaxed);
  for (auto& stream : place_.arrived) {
    auto ring = RingReader::attach(stream->memory.bytes());
    GRADSYNC_CHECK(ring.ok());
    auto& slot = incoming_[Peer{stream->from, stream->channel}];
    const LandingReceiver landing(stream->memory.bytes());
    slot = std::make_unique<Incoming>(Incoming{std::move(stream), std::move(*ring), landing});
    incoming_open_.push_back(slot.get());
  }
  place_.arrived.clear();
}

Loopback::Incoming* Loopback::find(Peer from) {
  auto* slot = incoming_.find(from);
  if (slot && *slot) return slot->get();
  if (place_.opened.load(std::memory_order_acquire) == opened_fetched_) return nullptr;
  fetch_arrived();
  slot = incoming_.find(from);
  return slot ? slot->get() : nullptr;
}

Result<std::span<const std::byte>> Loopback::peek(Peer from, std::size_t at_least) {
  const bool sender_gone = gone(from.rank);  // looked at first: what was sent before is then visible
  Incoming* const stream = find(from);
  if (!stream) {
    if (sender_gone) return lost("receive from", from.rank);
    return std::span<const std::byte>();
  }
  auto shown = stream->ring.peek(at_least);
  if (shown.ok() && shown->empty() && borrow(*stream)) shown = stream->ring.peek(at_least);
  if (sender_gone && shown.ok() && shown->size() < std::max<std::size_t>(at_least, 1))
    return lost("receive from", from.rank);
  return shown;
}

bool Loopback::consume(Peer from, std::size_t count) {
  if (count == 0) return true;
  Incoming* const stream = find(from);
  GRADSYNC_CHECK(stream != nullptr);
  const bool sound = stream->ring.consume(count);
  if (stream->ring.take_writer_asleep()) fabric_->wake(from.rank);
  return sound;
}

Result<std::size_t> Loopback::receive(Peer from, std::span<std::byte> into) {
  const bool sender_gone = gone(from.rank);
  Incoming* const stream = find(from);
  if (!stream) {
    if (sender_gone && !into.empty()) return lost("receive from", from.rank);
    return std::size_t{0};
  }
  std::size_t moved = 0;
  // One step at a time, so that a sleeping sender starts again early.
  while (moved < into.size()) {
    auto step = stream->ring.read(into.subspan(moved, std::min(into.size() - moved, kRingPublishBytes)));
    if (!step.ok()) return step.status();
    if (*step == 0 && !borrow(*stream)) break;
    moved += *step;
    if (stream->ring.take_writer_asleep()) fabric_->wake(from.rank);
  }
  if (moved == 0 && sender_gone && !into.empty()) return lost("receive from", from.rank);
  return moved;
}

void Loopback::append_senders(Channel channel, std::vector<std::uint32_t>& out) const {
  for (const Incoming* incoming : incoming_open_)
    if (incoming->stream->channel == channel) out.push_back(incoming->stream->from);
  if (place_.opened.load(std::memory_order_acquire) == opened_fetched_) return;
  const std::lock_guard lock(place_.mutex);
  for (const auto& stream : place_.arrived)
    if (stream->channel == channel) out.push_back(stream->from);
}

std::byte* Loopback::own_board() {
  if (!place_.board && may_have_boards())
    if (auto memory = Mapping::anonymous(kBoardBytes); memory.ok()) {
      auto kept = std::make_shared<Mapping>(std::move(*memory));
      BoardView::make(kept->bytes());
      place_.board = {kept, kept->bytes().data()};
    }
  return place_.board.get();
}

bool Loopback::arm() {
  place_.asleep.store(true, std::memory_order_seq_cst);
  bool changed = false;
  const auto look = [&](std::uint64_t now, std::uint64_t& looked) { changed |= std::exchange(looked, now) != now; };
  look(place_.opened.load(std::memory_order_seq_cst), opened_looked_);
  look(fabric_->departed.load(std::memory_order_seq_cst), departed_looked_);
  if (opened_looked_ != opened_fetched_) fetch_arrived();
  for (Incoming* stream : incoming_open_) {
    changed |= stream->ring.bytes_changed();
    changed |= stream->landing.changed();
  }
  for (Outgoing* stream : outgoing_open_) {
    const bool waits = stream->wants_room || stream->ring.lending() || stream->landing.landing();
    stream->ring.set_asleep(waits);
    if (waits) changed |= stream->ring.room_changed();
    changed |= stream->landing.changed();
  }
  return !changed;
}

void Loopback::disarm() {
  place_.asleep.store(false, std::memory_order_seq_cst);
  std::uint64_t count;
  // Always read: a waker that saw `asleep` may write late, and what it wrote would wake every later sleep at once.
  [[maybe_unused]] const auto got = ::read(place_.event.get(), &count, sizeof count);
}

}  // namespace

std::shared_ptr<LoopbackFabric> make_loopback_fabric(std::uint32_t size, std::size_t ring_bytes) {
  GRADSYNC_CHECK(size > 0 && ring_capacity_valid(ring_bytes));
  return std::make_shared<LoopbackFabric>(size, ring_bytes);
}

std::unique_ptr<Transport> loopback_transport(std::shared_ptr<LoopbackFabric> fabric, std::uint32_t rank,
                                              std::shared_ptr<PageRegistry> pages) {
  GRADSYNC_CHECK(fabric && rank < fabric->size);
  Place& place = fabric->places[rank];
  GRADSYNC_CHECK(!place.taken.exchange(true));
  place.event.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!place.event) throw Error(failure(ErrorCode::unavailable, "rank {}: no eventfd: {}", rank, errno_text(errno)));
  return std::make_unique<Loopback>(std::move(fabric), rank, std::move(pages));
}

}  // namespace gradsync
