#include "transport/fault.hpp"

#include <algorithm>
#include <map>

#include "base/random.hpp"
#include "transport/pieces.hpp"

namespace gradsync {
namespace {

constexpr std::uint64_t kEndless = ~std::uint64_t{0};
constexpr std::uint64_t kPieceWithoutLimit = 64u << 10;  // unit of the decisions where the plan sets no max_piece

// One direction of one stream, cut into pieces whose lengths and delays come from the seed.
class Flow {
 public:
  Flow(const FaultPlan& plan, std::uint64_t name) : plan_(plan), random_(mix64(plan.seed ^ mix64(name))) {
    next_piece();
  }

  std::size_t lent = 0;  // of a loan under way: what the peer has read

  std::uint64_t passed() const { return passed_; }
  std::uint64_t piece_left() const { return piece_end_ - passed_; }
  // Whether somebody waits for this piece's time, true once more when it has come: look again.
  bool waited_for(TimePoint now) {
    if (!held_) return false;
    if (now >= until_) held_ = false, delay_ = Nanoseconds{0};
    return true;
  }

  // Whether the bytes of this piece are still held back. The delay begins when they are first asked for.
  bool hold(TimePoint now) {
    if (delay_ > Nanoseconds{0} && !held_) until_ = now + delay_, held_ = true;
    if (held_ && now >= until_) held_ = false, delay_ = Nanoseconds{0};
    return held_;
  }
  void pass(std::uint64_t bytes) {
    passed_ += bytes;
    while (passed_ >= piece_end_) next_piece();
  }

 private:
  void next_piece() {
    if (plan_.max_piece == 0 && plan_.delay_probability <= 0) {
      piece_end_ = kEndless;
      return;
    }
    piece_end_ += 1 + random_.below(plan_.max_piece > 0 ? plan_.max_piece : kPieceWithoutLimit);
    const bool delayed = random_.unit() < plan_.delay_probability;
    const auto longest = static_cast<std::uint64_t>(plan_.delay_max.count());
    const std::uint64_t nanoseconds = random_.below(longest + 1);
    delay_ = Nanoseconds(delayed ? static_cast<std::int64_t>(nanoseconds) : 0);
    held_ = false;
  }

  const FaultPlan& plan_;
  Random random_;
  std::uint64_t passed_ = 0, piece_end_ = 0;
  Nanoseconds delay_{0};
  TimePoint until_;
  bool held_ = false;
};

class Fault final : public Transport {
 public:
  Fault(std::unique_ptr<Transport> inner, FaultPlan plan, std::shared_ptr<const Clock> clock)
      : inner_(std::move(inner)),
        plan_(std::move(plan)),
        clock_(std::move(clock)) {}

  TransportKind kind() const override { return inner_->kind(); }
  Result<std::size_t> send(Peer to, Pieces pieces) override;
  Result<std::span<const std::byte>> peek(Peer from, std::size_t at_least) override;
  bool consume(Peer from, std::size_t count) override {
    if (count == 0) return true;
    const bool sound = inner_->consume(from, count);
    flow(from, Direction::in).pass(count);
    return sound;
  }
  bool lends(Peer to, std::span<const std::byte> bytes) override { return inner_->lends(to, bytes); }
  Result<std::optional<std::size_t>> lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) override;
  void withdraw() override { inner_->withdraw(); }
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override {
    inner_->append_senders(channel, out);
  }
  bool remote(std::uint32_t rank) const override { return inner_->remote(rank); }
  void await(Peer from, std::uint64_t bytes) override { inner_->await(from, bytes); }
  int descriptor() const override { return inner_->descriptor(); }
  // Nobody sleeps while bytes are held back: their time comes without an event.
  bool arm() override {
    bool quiet = inner_->arm();
    for (auto& [name, flow] : flows_) quiet = !flow.waited_for(clock_->now()) && quiet;
    return quiet;
  }
  void disarm() override { inner_->disarm(); }
  std::string describe(std::uint32_t rank) const override { return inner_->describe(rank); }

 private:
  enum class Direction : std::uint8_t { out, in };

  Flow& flow(Peer peer, Direction direction) {
    const std::uint64_t name =
        (std::uint64_t{peer.rank} * kChannelCount + static_cast<std::uint64_t>(peer.channel)) * 2 +
        static_cast<std::uint64_t>(direction);
    return flows_.try_emplace(name, plan_, name).first->second;
  }
  bool partitioned(std::uint32_t rank) const {
    return plan_.partition && std::find(plan_.partition->peers.begin(), plan_.partition->peers.end(), rank) !=
                                  plan_.partition->peers.end();
  }
  // How many bytes the flow may still pass before the planned loss or partition.
  std::uint64_t allowance(Peer peer, const Flow& flow) const {
    std::uint64_t left = kEndless;
    const auto until = [&](std::uint64_t after) { left = std::min(left, after - std::min(after, flow.passed())); };
    if (plan_.lost && plan_.lost->peer == peer.rank) until(plan_.lost->after_bytes);
    if (partitioned(peer.rank)) until(plan_.partition->after_bytes);
    return left;
  }
  // Whether a flow of this peer has come to the planned loss.
  Status lost(Peer peer, const Flow& flow) {
    if (!plan_.lost || plan_.lost->peer != peer.rank) return {};
    lost_now_ = lost_now_ || flow.passed() >= plan_.lost->after_bytes;
    if (!lost_now_) return {};
    return peer_failure(ErrorCode::peer_lost, static_cast<int>(peer.rank),
                        "rank {} ({}): lost on purpose after {} bytes", peer.rank, describe(peer.rank),
                        plan_.lost->after_bytes);
  }

  std::unique_ptr<Transport> inner_;
  const FaultPlan plan_;
  std::shared_ptr<const Clock> clock_;
  std::map<std::uint64_t, Flow> flows_;
  bool lost_now_ = false;
};

Result<std::size_t> Fault::send(Peer to, Pieces pieces) {
  Flow& out = flow(to, Direction::out);
  if (Status status = lost(to, out); !status.ok()) return status;
  const std::uint64_t most = std::min(out.piece_left(), allowance(to, out));
  if (most == 0 || bytes_of(pieces) == 0 || out.hold(clock_->now())) return std::size_t{0};
  std::vector<std::span<const std::byte>> first;
  std::uint64_t left = most;
  for (auto piece : pieces) {
    first.push_back(piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(left, piece.size()))));
    left -= first.back().size();
  }
  auto taken = inner_->send(to, first);
  if (taken.ok()) out.pass(*taken);
  return taken;
}

// Held back, cut and lost on the reader's side like all bytes; here only the loss and the partition count.
Result<std::optional<std::size_t>> Fault::lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) {
  Flow& out = flow(to, Direction::out);
  if (Status status = lost(to, out); !status.ok()) return status;
  const std::size_t before = out.lent;
  const std::uint64_t most = before + std::min<std::uint64_t>(ready - before, allowance(to, out));
  if (most == 0) return std::optional<std::size_t>(0);
  auto lent = inner_->lend(to, bytes, static_cast<std::size_t>(most));
  if (!lent.ok() || !*lent) return out.lent = 0, lent;
  if (**lent > before) out.pass(**lent - before);
  out.lent = **lent == bytes.size() ? 0 : **lent;
  return lent;
}

Result<std::span<const std::byte>> Fault::peek(Peer from, std::size_t at_least) {
  Flow& in = flow(from, Direction::in);
  if (Status status = lost(from, in); !status.ok()) return status;
  auto shown = inner_->peek(from, at_least);
  if (!shown.ok() || shown->empty()) return shown;
  if (in.hold(clock_->now())) return shown->first(0);
  // A piece ends the stretch, but no earlier than what was asked for; a planned loss or partition does in any case.
  const std::uint64_t piece = std::max<std::uint64_t>(in.piece_left(), at_least);
  return shown->first(static_cast<std::size_t>(std::min({piece, allowance(from, in), std::uint64_t{shown->size()}})));
}

}  // namespace

std::unique_ptr<Transport> fault_transport(std::unique_ptr<Transport> inner, FaultPlan plan,
                                           std::shared_ptr<const Clock> clock) {
  GRADSYNC_CHECK(inner && clock);
  GRADSYNC_CHECK(plan.delay_max.count() >= 0);
  return std::make_unique<Fault>(std::move(inner), std::move(plan), std::move(clock));
}

}  // namespace gradsync
