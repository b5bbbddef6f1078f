// Worlds of engines that meet at boards, in one thread: turns in any order, from a seed, and a reference for their results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "algorithms/catalogue.hpp"
#include "base/random.hpp"
#include "engine/engine.hpp"
#include "kernels/reference_for_test.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"
#include "transport/pages_for_test.hpp"

namespace gradsync::board_test {

using namespace std::chrono_literals;

// What is wrong with one rank's boards.
struct Faults {
  bool may = true, makes = true;
  int hides_from = -1, cannot_see = -1;
  std::uint64_t takes_at_a_time = ~std::uint64_t{0};  // bytes of a send
  std::function<void()> while_arming = [] {};         // once, before the transport itself does
};

// Passes everything on, with faults, and counts the bytes sent.
class Watched final : public Transport {
 public:
  Watched(std::unique_ptr<Transport> inner, Faults& faults, std::uint64_t& sent)
      : inner_(std::move(inner)),
        faults_(faults),
        sent_(sent) {}
  TransportKind kind() const override { return inner_->kind(); }
  Result<std::size_t> send(Peer to, std::span<const std::span<const std::byte>> pieces) override {
    if (pieces.size() == 1 && pieces[0].size() > faults_.takes_at_a_time) {
      const auto some = pieces[0].first(static_cast<std::size_t>(faults_.takes_at_a_time));
      return counted(inner_->send(to, {&some, 1}));
    }
    return counted(inner_->send(to, pieces));
  }
  Result<std::span<const std::byte>> peek(Peer from, std::size_t least) override { return inner_->peek(from, least); }
  bool consume(Peer from, std::size_t count) override { return inner_->consume(from, count); }
  Result<std::size_t> receive(Peer from, std::span<std::byte> into) override { return inner_->receive(from, into); }
  bool lends(Peer to, std::span<const std::byte> bytes) override { return inner_->lends(to, bytes); }
  Result<std::optional<std::size_t>> lend(Peer to, std::span<const std::byte> bytes, std::size_t ready) override {
    return inner_->lend(to, bytes, ready);
  }
  void withdraw() override { inner_->withdraw(); }
  std::optional<Landing> offer_landing(Peer from, const LandingOffer& offer) override {
    return inner_->offer_landing(from, offer);
  }
  void allow_landing(Peer from, std::uint64_t bytes) override { inner_->allow_landing(from, bytes); }
  Result<std::optional<std::uint64_t>> landed(Peer from) override { return inner_->landed(from); }
  void end_landing(Peer from) override { inner_->end_landing(from); }
  std::optional<std::uint64_t> sent_position(Peer to) override { return inner_->sent_position(to); }
  std::optional<Landing> take_landing(Peer to, std::uint64_t position, std::uint64_t fingerprint) override {
    return inner_->take_landing(to, position, fingerprint);
  }
  Result<std::span<std::byte>> begin_land(Peer to, std::uint64_t wanted, std::uint64_t ahead) override {
    return inner_->begin_land(to, wanted, ahead);
  }
  void end_land(Peer to, std::size_t count) override { inner_->end_land(to, count); }
  bool may_have_boards() const override { return faults_.may && inner_->may_have_boards(); }
  std::byte* own_board() override {
    EXPECT_TRUE(faults_.may) << "nobody may ask";
    return faults_.makes ? inner_->own_board() : nullptr;
  }
  bool show_board(std::uint32_t to) override {
    return static_cast<int>(to) != faults_.hides_from && inner_->show_board(to);
  }
  std::shared_ptr<std::byte> board_of(std::uint32_t from) override {
    return static_cast<int>(from) == faults_.cannot_see ? nullptr : inner_->board_of(from);
  }
  std::optional<Shown> show(std::uint32_t to, std::span<const std::byte> bytes) override {
    return inner_->show(to, bytes);
  }
  std::byte* shown(std::uint32_t from, const Shown& where, std::uint64_t bytes) override {
    return inner_->shown(from, where, bytes);
  }
  void take_away(std::span<std::byte> bytes) override { inner_->take_away(bytes); }
  void ring(std::uint32_t to) override { inner_->ring(to); }
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override {
    inner_->append_senders(channel, out);
  }
  int descriptor() const override { return inner_->descriptor(); }
  bool arm() override {
    std::exchange(faults_.while_arming, [] {})();
    return inner_->arm();
  }
  void disarm() override { inner_->disarm(); }
  std::string describe(std::uint32_t rank) const override { return inner_->describe(rank); }

 private:
  Result<std::size_t> counted(Result<std::size_t> sent) {
    if (sent.ok()) sent_ += *sent;
    return sent;
  }
  std::unique_ptr<Transport> inner_;
  Faults& faults_;
  std::uint64_t& sent_;
};

// One call, equal on all ranks but for what memory each brings.
struct Plan {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::two_shot;
  std::size_t count = 0;
  std::uint32_t root = 0;
  std::uint32_t peer = 0;        // of a message: from root to peer
  std::uint32_t registered = 0;  // by rank: a bit
  bool in_place = true;
  std::size_t shift = 0;  // bytes from the start of the memory to the first element
};

inline std::size_t size_in_bytes(DType dtype, std::size_t count) { return count * size_of(dtype); }
inline bool has_blocks_in(Collective c) { return c == Collective::reduce_scatter; }
inline bool has_blocks_out(Collective c) { return c == Collective::all_gather; }

// What one rank brings to a call, and its end.
struct Part {
  std::vector<std::byte> plain_input, plain_output;
  std::span<std::byte> input, output;
  std::shared_ptr<Completion> completion = std::make_shared<Completion>();
};

class World {
 public:
  World(std::uint32_t size, std::uint64_t seed, std::vector<Faults> faults = {})
      : size_(size),
        turns_(seed),
        faults_(std::move(faults)),
        sent_(size),
        waiting_(size) {
    faults_.resize(size);
    auto fabric = make_loopback_fabric(size, 4096);
    for (std::uint32_t r = 0; r < size; ++r)
      engines_.push_back(std::make_unique<Engine>(
          std::make_unique<Watched>(loopback_transport(fabric, r, book_), faults_[r], sent_[r])));
  }
  std::uint32_t size() const { return size_; }
  Engine& engine(std::uint32_t rank) { return *engines_[rank]; }
  void leave(std::uint32_t rank) { engines_[rank].reset(); }
  Faults& faults(std::uint32_t rank) { return faults_[rank]; }
  std::uint64_t sent(std::uint32_t rank) const { return sent_[rank]; }
  Random& turns() { return turns_; }

  // A rank's memory for a call.
  Part part(const Plan& plan, std::uint32_t rank) {
    Part part;
    const std::size_t blocks = size_;
    const std::size_t in = size_in_bytes(plan.dtype, plan.count * (has_blocks_in(plan.collective) ? blocks : 1));
    const std::size_t out = size_in_bytes(plan.dtype, plan.count * (has_blocks_out(plan.collective) ? blocks : 1));
    const bool registered = (plan.registered >> rank & 1) != 0;
    part.input = memory(registered, part.plain_input, in, plan.shift);
    part.output = plan.in_place && in == out ? part.input : memory(registered, part.plain_output, out, plan.shift);
    return part;
  }
  // Makes the call now; it moves in later turns.
  void submit(const Plan& plan, std::uint32_t rank, Part& part, Deadline deadline = Deadline::at(TimePoint::max())) {
    engine(rank).submit(std::make_unique<Operation>(request(plan, rank, part, deadline), kEpoch, part.completion));
  }
  // Makes it in a turn of the rank, after those that were put off before.
  void submit_later(const Plan& plan, std::uint32_t rank, Part& part) {
    waiting_[rank].push_back([this, plan, rank, &part] { submit(plan, rank, part); });
  }

  // Turns in any order, many of one rank before another's, until all are idle. False if a second brings nothing.
  bool run() {
    for (int still = 0; still < 1000;) {
      bool moved = false, idle = true;
      for (std::size_t i = 0; i < 2 * engines_.size(); ++i) moved = turn(turns_.below(size_)) || moved;
      for (std::uint32_t r = 0; r < size_; ++r) moved = turn(r) || moved;
      if (!moved) now_ += 1ms;
      if (!moved)
        for (auto& engine : engines_) moved = (engine && engine->attend(now_)) || moved;
      for (std::uint32_t r = 0; r < size_; ++r)
        idle = idle && (!engines_[r] || (engines_[r]->idle() && waiting_[r].empty()));
      if (idle) return true;
      still = moved ? 0 : still + 1;
    }
    return false;
  }

 private:
  static constexpr std::uint64_t kEpoch = 81;

  std::span<std::byte> memory(bool registered, std::vector<std::byte>& plain, std::size_t bytes, std::size_t shift) {
    if (registered && bytes > 0) return book_->allocate(bytes + shift).subspan(shift, bytes);
    plain.resize(bytes + shift);
    return std::span(plain).subspan(shift);
  }
  bool turn(std::uint64_t rank) {
    if (!engines_[rank]) return false;
    auto& waiting = waiting_[rank];
    bool moved = false;
    if (!waiting.empty() && turns_.below(3) == 0) {
      waiting.front()();
      waiting.pop_front();
      moved = true;
    }
    for (std::uint64_t pass = turns_.below(6); pass > 0; --pass) moved = engines_[rank]->progress() || moved;
    return moved;
  }
  Request request(const Plan& plan, std::uint32_t rank, Part& part, Deadline deadline) {
    Request request;
    const bool message = plan.collective == Collective::send;
    const Collective collective = message && rank != plan.root ? Collective::recv : plan.collective;
    const std::uint32_t root = message ? (rank == plan.root ? plan.peer : plan.root) : plan.root;
    const Recipe recipe{collective, plan.algorithm, size_, root, 1, {}};
    request.channel = message ? Channel::point_to_point : Channel::collective;
    sequences_.resize(size_);
    request.sequence = message ? ++messages_ : ++sequences_[rank];
    request.schedule = std::make_shared<const Schedule>(make_schedule(recipe, rank));
    request.call = {collective, plan.dtype, plan.op, plan.algorithm, message ? 0 : plan.root, 1, plan.count, 0, 0};
    if (!message || rank == plan.root) request.input = part.input.data();
    if (!message || rank != plan.root) request.output = part.output.data();
    request.input_layout = request.output_layout = layout_for(recipe, request.schedule->shape, plan.count);
    request.contributions = size_;
    request.deadline = deadline;
    return request;
  }

  const std::uint32_t size_;
  Random turns_;
  std::shared_ptr<testing::Book> book_ = std::make_shared<testing::Book>();
  std::vector<Faults> faults_;
  std::vector<std::uint64_t> sent_, sequences_;
  std::uint64_t messages_ = 0;
  std::vector<std::deque<std::function<void()>>> waiting_;
  std::vector<std::unique_ptr<Engine>> engines_;
  TimePoint now_;
};

// ---- values: small whole numbers, so that every partial result is exact; negative ones where the type has them

inline bool has_sign(DType d) { return d == DType::i8 || d == DType::i32 || d == DType::i64 || is_floating(d); }
inline std::int64_t contribution(DType dtype, ReduceOp op, std::uint64_t rank, std::uint64_t i) {
  const std::uint64_t random = mix64(i * 31 + rank * 1000003);
  if (op == ReduceOp::product) return (i + rank) % 5 == 0 ? (has_sign(dtype) && i % 2 == 0 ? -2 : 2) : 1;
  const auto value = static_cast<std::int64_t>(random % 4);
  return has_sign(dtype) && (random >> 32) % 2 == 0 ? -value : value;
}

inline std::int64_t combined(ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::product: return a * b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
    case ReduceOp::bit_and: return a & b;
    case ReduceOp::bit_or: return a | b;
    case ReduceOp::bit_xor: return a ^ b;
    default: return a + b;
  }
}

// value / divisor as one element.
inline void put(DType dtype, std::byte* at, std::int64_t value, std::int64_t divisor = 1) {
  const auto store = [&](auto element) { std::memcpy(at, &element, sizeof element); };
  using kernels::reference::round_quotient;
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
      return store(round_quotient(kernels::reference::format_of(dtype), static_cast<float>(value),
                                  static_cast<double>(divisor)));
    case DType::f32: return store(static_cast<float>(value) / static_cast<float>(divisor));
    case DType::f64: return store(static_cast<double>(value) / static_cast<double>(divisor));
    case DType::i8: return store(static_cast<std::int8_t>(value / divisor));
    case DType::u8: return store(static_cast<std::uint8_t>(value / divisor));
    case DType::i32: return store(static_cast<std::int32_t>(value / divisor));
    case DType::u32: return store(static_cast<std::uint32_t>(value / divisor));
    case DType::i64: return store(value / divisor);
    case DType::u64: return store(static_cast<std::uint64_t>(value / divisor));
    case DType::boolean: return store(static_cast<std::uint8_t>(value));
  }
}

inline void fill(const Plan& plan, std::uint64_t rank, std::span<std::byte> into) {
  const std::size_t element = size_of(plan.dtype);
  for (std::size_t i = 0; i * element < into.size(); ++i)
    put(plan.dtype, into.data() + i * element, contribution(plan.dtype, plan.op, rank, i));
}

inline std::vector<std::byte> expected(const Plan& plan, std::uint32_t size) {
  const std::size_t element = size_of(plan.dtype);
  std::vector<std::byte> result(plan.count * element);
  for (std::size_t i = 0; i < plan.count; ++i) {
    if (plan.dtype == DType::boolean) {
      std::uint8_t sum = contribution(plan.dtype, plan.op, 0, i) != 0;
      for (std::uint64_t r = 1; r < size; ++r)
        sum = kernels::reference::combine_booleans(plan.op, sum, contribution(plan.dtype, plan.op, r, i) != 0);
      put(plan.dtype, result.data() + i * element, sum);
      continue;
    }
    std::int64_t sum = contribution(plan.dtype, plan.op, 0, i);
    for (std::uint64_t r = 1; r < size; ++r) sum = combined(plan.op, sum, contribution(plan.dtype, plan.op, r, i));
    put(plan.dtype, result.data() + i * element, sum, plan.op == ReduceOp::avg ? size : 1);
  }
  return result;
}

}  // namespace gradsync::board_test
