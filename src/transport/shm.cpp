#include "transport/shm.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "transport/doorbell.hpp"
#include "transport/landing.hpp"
#include "transport/lending.hpp"
#include "transport/ring.hpp"

namespace gradsync {
namespace {

constexpr std::string_view kSend = "send to", kReceive = "receive from";

class RingOutgoing final : public Outgoing {
 public:
  RingOutgoing(std::shared_ptr<Mapping> memory, RingWriter ring, LandingSender landing, Descriptor socket,
               PeerName peer, Poller* poller, const ShmSetup& setup)
      : memory_(std::move(memory)),
        ring_(ring),
        landing_(landing),
        places_(setup.mapped, peer.rank),
        bell_(std::move(socket), &places_),
        peer_(std::move(peer)),
        poller_(poller),
        pages_(setup.pages) {}

  Status watch() { return bell_.watch(*poller_); }

  Result<std::size_t> send(Pieces pieces) override {
    if (!failure().ok()) return failure_;
    PieceCursor from(pieces);
    const std::size_t offered = from.left();
    while (from.left() > 0) {
      auto written = ring_.write(from);
      if (!written.ok()) return failure_ = peer_.failed(written.status().code, kSend, written.status().message);
      if (*written == 0) break;
      if (ring_.take_reader_asleep()) bell_.ring();
    }
    wants_room_ = from.left() > 0;
    if (from.left() == offered && poller_) poller_->collect_sometimes();
    return offered - from.left();
  }

  bool lends(std::span<const std::byte> bytes) override {
    return pages_ && !ring_.loans_refused() && pages_->find(bytes) != nullptr;
  }

  Result<std::optional<std::size_t>> lend(std::span<const std::byte> bytes, std::size_t ready) override {
    const bool ended = bell_.broken();  // before the count is looked at: all that was ever read then shows
    if (!ring_.lending() && (ended || !begin_loan(bytes))) {
      if (ended) return failure();
      return std::optional<std::size_t>();
    }
    const bool news = ring_.loan_ready(ready);
    if (news && ring_.take_reader_asleep()) bell_.ring();
    auto read = ring_.loan_read();
    if (!read.ok()) return failure_ = peer_.failed(read.status().code, kSend, read.status().message);
    if (!ring_.lending()) lent_.reset();
    else if (ended) return failure();
    else if (!news && poller_) poller_->collect_sometimes();
    if (!*read) return std::optional<std::size_t>();
    return std::optional<std::size_t>(static_cast<std::size_t>(**read));
  }

  void withdraw() override {
    if (!ring_.lending()) return;
    ring_.withdraw();
    if (ring_.take_reader_asleep()) bell_.ring();
  }

  std::optional<std::uint64_t> position() const override {
    return ring_.lending() ? std::nullopt : std::optional(ring_.position());
  }

  std::optional<Transport::Landing> take_landing(std::uint64_t position, std::uint64_t fingerprint) override {
    const auto place = landing_.offered(position, fingerprint);
    if (!place) return std::nullopt;
    std::byte* memory = places_.find(place->memory, place->offset, place->bytes);
    if (memory == nullptr) {
      bell_.hear();  // it was passed before it was offered
      memory = places_.find(place->memory, place->offset, place->bytes);
    }
    if (memory == nullptr || place->bytes == 0) return std::nullopt;
    landing_.accept(*place, memory);
    return Transport::Landing{place->skip, place->bytes};
  }

  Result<std::span<std::byte>> begin_land(std::uint64_t wanted, std::uint64_t consumed, std::uint64_t ahead) override {
    if (!failure().ok()) return failure_;
    auto place = landing_.begin_write(wanted, consumed, ahead);
    if (!place.ok()) return failure_ = peer_.failed(place.status().code, kSend, place.status().message);
    if (place->empty() && poller_) poller_->collect_sometimes();
    return place;
  }
  void end_land(std::size_t count) override {
    landing_.end_write(count);
    if (ring_.take_reader_asleep()) bell_.ring();
  }

  bool show(const std::shared_ptr<const Pages>& pages) override { return passed_.pass(pages, bell_); }
  void ring() override { bell_.ring(); }

  const Status& failure() override {
    if (bell_.broken() && failure_.ok()) failure_ = peer_.failed(ErrorCode::peer_lost, kSend, bell_.why());
    return failure_;
  }

  bool arm() override {
    passed_.tell_freed(bell_);
    if (!waits()) return false;
    ring_.set_asleep(true);
    const bool room = ring_.room_changed();
    return landing_.changed() || room;
  }
  void disarm() override {
    if (waits()) ring_.set_asleep(false);
  }

 private:
  bool waits() const { return wants_room_ || ring_.lending() || landing_.landing(); }
  bool begin_loan(std::span<const std::byte> bytes) {
    if (!pages_ || ring_.loans_refused()) return false;
    auto pages = pages_->find(bytes);
    if (!pages || !passed_.pass(pages, bell_)) return false;
    ring_.lend({pages->id(), static_cast<std::uint64_t>(bytes.data() - pages->bytes().data()), bytes.size()});
    lent_ = std::move(pages);
    return true;
  }

  std::shared_ptr<Mapping> memory_;
  RingWriter ring_;
  LandingSender landing_;
  BorrowedPages places_;
  Doorbell bell_;
  PeerName peer_;
  Poller* poller_;
  std::shared_ptr<PageRegistry> pages_;
  PassedPages passed_;
  std::shared_ptr<const Pages> lent_;  // of the loan under way
  bool wants_room_ = false;
};

class RingIncoming final : public Incoming {
 public:
  RingIncoming(std::shared_ptr<Mapping> memory, RingReader ring, Descriptor socket, PeerName peer, Poller* poller,
               const ShmSetup& setup)
      : memory_(std::move(memory)),
        ring_(std::move(ring)),
        landing_(memory_->bytes()),
        borrowed_(setup.mapped, peer.rank),
        bell_(std::move(socket), &borrowed_),
        peer_(std::move(peer)),
        poller_(poller),
        pages_(setup.pages) {}

  Status watch() { return bell_.watch(*poller_); }

  Result<std::span<const std::byte>> peek(std::size_t at_least) override {
    if (!failure_.ok()) return failure_;
    const bool ended = bell_.broken();  // before the ring is looked at: all that was ever written is then visible
    auto shown = ring_.peek(at_least);
    if (shown.ok() && shown->empty() && borrow()) shown = ring_.peek(at_least);
    if (!shown.ok()) return failure_ = peer_.failed(shown.status().code, kReceive, shown.status().message);
    if (shown->size() >= std::max<std::size_t>(at_least, 1)) return shown;
    if (ended) return lost(shown->empty());
    if (poller_) poller_->collect_sometimes();
    return shown;
  }

  bool consume(std::size_t count) override {
    const bool sound = ring_.consume(count);
    if (ring_.take_writer_asleep()) bell_.ring();
    return sound;
  }

  Result<std::size_t> receive(std::span<std::byte> into) override {
    if (!failure_.ok()) return failure_;
    const bool ended = bell_.broken();
    std::size_t moved = 0;
    while (moved < into.size()) {
      auto step = ring_.read(into.subspan(moved, std::min(into.size() - moved, kRingPublishBytes)));
      if (!step.ok()) return failure_ = peer_.failed(step.status().code, kReceive, step.status().message);
      if (*step == 0 && !borrow()) break;
      moved += *step;
      if (ring_.take_writer_asleep()) bell_.ring();
    }
    if (moved == 0 && !into.empty()) {
      if (ended) return lost(true);
      if (poller_) poller_->collect_sometimes();
    }
    return moved;
  }

  std::optional<Transport::Landing> offer_landing(const Transport::LandingOffer& offer, std::uint64_t after) override {
    if (!pages_ || landing_.open() || !failure_.ok() || bell_.broken()) return std::nullopt;
    const std::span<std::byte> part = whole_pages(offer.payload);
    if (part.size() < limits::landing_bytes_min) return std::nullopt;
    auto pages = pages_->find(part);
    if (!pages || !passed_.pass(pages, bell_)) return std::nullopt;
    const auto skip = static_cast<std::uint64_t>(part.data() - offer.payload.data());
    const auto offset = static_cast<std::uint64_t>(part.data() - pages->bytes().data());
    landing_.offer({ring_.position() + offer.ahead, offer.fingerprint, pages->id(), offset, skip, part.size(),
                    after == LandingPlace::kNever ? after : after + skip, 0});
    offered_ = {std::move(pages), part};
    return Transport::Landing{skip, part.size()};
  }

  std::uint64_t position() const override { return ring_.position(); }

  std::shared_ptr<std::byte> see(std::uint64_t memory, std::uint64_t offset, std::uint64_t bytes) override {
    if (auto seen = borrowed_.keep(memory, offset, bytes)) return seen;
    bell_.hear();  // it was passed before whatever speaks of it
    return borrowed_.keep(memory, offset, bytes);
  }

  void allow_landing(std::uint64_t bytes) override {
    if (landing_.allow(bytes) && ring_.take_writer_asleep_now()) bell_.ring();
  }

  Result<std::optional<std::uint64_t>> landed() override {
    if (!landing_.accepted()) return end_landing(), std::optional<std::uint64_t>();
    const bool ended = bell_.broken();
    auto landed = landing_.landed();
    if (!landed.ok()) return failure_ = peer_.failed(landed.status().code, kReceive, landed.status().message);
    if (ended && *landed < offered_.part.size()) return lost(true);
    if (poller_) poller_->collect_sometimes();
    return std::optional<std::uint64_t>(*landed);
  }

  void end_landing() override {
    landing_.end();
    offered_ = {};
  }

  void withdraw() override {
    const auto gone = [&] { return poller_->collect(), bell_.broken(); };
    if (!landing_.withdraw(Deadline::after(limits::landing_withdraw_timeout), gone))
      offered_.pages->replace(offered_.part);
    offered_ = {};
  }

  bool arm() override {
    passed_.tell_freed(bell_);
    ring_.set_asleep(true);
    const bool bytes = ring_.bytes_changed();
    return landing_.changed() || bytes;
  }
  void disarm() override { ring_.set_asleep(false); }

 private:
  struct Offered {
    std::shared_ptr<const Pages> pages;
    std::span<std::byte> part;
  };
  // Goes on in the writer's memory if that is where the next bytes are; true if so.
  bool borrow() {
    const auto loan = ring_.next_loan();
    if (!loan) return false;
    std::byte* data = borrowed_.find(loan->memory, loan->offset, loan->bytes);
    if (data == nullptr) {
      bell_.hear();  // it was passed before it was lent
      data = borrowed_.find(loan->memory, loan->offset, loan->bytes);
    }
    if (data != nullptr && loan->bytes > 0) {
      ring_.take_loan(*loan, data);
      return true;
    }
    ring_.refuse_loan();
    if (ring_.take_writer_asleep()) bell_.ring();
    return false;
  }

  Status lost(bool drained) {
    Status status = peer_.failed(ErrorCode::peer_lost, kReceive, bell_.why());
    if (drained) failure_ = status;  // otherwise a shorter read may still have the rest
    return status;
  }

  std::shared_ptr<Mapping> memory_;
  RingReader ring_;
  LandingReceiver landing_;
  BorrowedPages borrowed_;
  Doorbell bell_;
  PeerName peer_;
  Poller* poller_;
  std::shared_ptr<PageRegistry> pages_;
  PassedPages passed_;
  Offered offered_;
};

}  // namespace

Result<std::unique_ptr<Outgoing>> open_shm(const Dialer::Call& call, PeerName peer, const ShmSetup& setup,
                                           Dialer& dialer, Poller& poller) {
  const auto named = [&](const Status& status) { return peer.failed(status.code, kSend, status.message); };
  const std::size_t bytes = kRingHeaderBytes + setup.ring_bytes;
  auto memory = create_sealed_memory(bytes);
  if (!memory.ok()) return named(memory.status());
  auto mapping = Mapping::shared(memory->get(), bytes);
  if (!mapping.ok()) return named(mapping.status());
  auto shared = std::make_shared<Mapping>(std::move(*mapping));
  const LandingSender landing(shared->bytes());  // both before the peer can see it
  const RingWriter ring(shared->bytes());
  Dialer::Call with_memory = call;
  with_memory.memory = memory->get();
  auto line = dialer.dial(with_memory);
  if (!line.ok()) return named(line.status());
  auto stream = std::make_unique<RingOutgoing>(std::move(shared), ring, landing, std::move(line->socket),
                                               std::move(peer), &poller, setup);
  if (Status status = stream->watch(); !status.ok()) return status;
  return std::unique_ptr<Outgoing>(std::move(stream));
}

Result<std::unique_ptr<Incoming>> accept_shm(Arrival arrival, PeerName peer, const ShmSetup& setup, Poller& poller) {
  const auto named = [&](const Status& status) { return peer.failed(status.code, kReceive, status.message); };
  auto bytes = sealed_memory_bytes(arrival.memory.get());
  if (!bytes.ok()) return named(bytes.status());
  if (*bytes > kRingHeaderBytes + kRingBytesMax)
    return peer.failed(ErrorCode::protocol, kReceive, fmt::format("a ring of {} bytes", *bytes));
  auto mapping = Mapping::shared(arrival.memory.get(), *bytes);
  if (!mapping.ok()) return named(mapping.status());
  auto shared = std::make_shared<Mapping>(std::move(*mapping));
  auto ring = RingReader::attach(shared->bytes());
  if (!ring.ok()) return named(ring.status());
  auto stream = std::make_unique<RingIncoming>(std::move(shared), std::move(*ring), std::move(arrival.socket),
                                               std::move(peer), &poller, setup);
  if (Status status = stream->watch(); !status.ok()) return status;
  return std::unique_ptr<Incoming>(std::move(stream));
}

Result<OwnRing> open_own_ring(PeerName self, std::size_t ring_bytes) {
  auto mapping = Mapping::anonymous(kRingHeaderBytes + ring_bytes);
  if (!mapping.ok()) return mapping.status();
  auto shared = std::make_shared<Mapping>(std::move(*mapping));
  OwnRing own;
  const LandingSender landing(shared->bytes());
  own.outgoing = std::make_unique<RingOutgoing>(shared, RingWriter(shared->bytes()), landing, Descriptor(), self,
                                                nullptr, ShmSetup());
  auto ring = RingReader::attach(shared->bytes());
  if (!ring.ok()) return ring.status();
  own.incoming = std::make_unique<RingIncoming>(std::move(shared), std::move(*ring), Descriptor(), std::move(self),
                                                nullptr, ShmSetup());
  return own;
}

}  // namespace gradsync
