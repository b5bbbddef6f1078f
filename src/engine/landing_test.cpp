// Engines whose messages land: every collective of the catalogue, call after call, in many orders of turns.
#include <gtest/gtest.h>

#include "algorithms/catalogue.hpp"
#include "base/random.hpp"
#include "engine/engine.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"
#include "transport/pages_for_test.hpp"

namespace gradsync {
namespace {

using testing::Book;

using namespace std::chrono_literals;

constexpr std::uint64_t kEpoch = 79;

// Passes everything on, and counts the bytes that landed.
class Counting final : public Transport {
 public:
  Counting(std::unique_ptr<Transport> inner, std::uint64_t& landed) : inner_(std::move(inner)), landed_(landed) {}
  TransportKind kind() const override { return inner_->kind(); }
  Result<std::size_t> send(Peer to, std::span<const std::span<const std::byte>> pieces) override {
    return inner_->send(to, pieces);
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
  void end_land(Peer to, std::size_t count) override {
    landed_ += count;
    inner_->end_land(to, count);
  }
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override {
    inner_->append_senders(channel, out);
  }
  int descriptor() const override { return inner_->descriptor(); }
  bool arm() override { return inner_->arm(); }
  void disarm() override { inner_->disarm(); }
  std::string describe(std::uint32_t rank) const override { return inner_->describe(rank); }

 private:
  std::unique_ptr<Transport> inner_;
  std::uint64_t& landed_;
};

class World {
 public:
  World(std::uint32_t size, std::uint64_t seed) : turns_(seed) {
    auto fabric = make_loopback_fabric(size, 4096);
    for (std::uint32_t r = 0; r < size; ++r)
      engines_.push_back(
          std::make_unique<Engine>(std::make_unique<Counting>(loopback_transport(fabric, r, book_), landed_)));
  }
  Engine& engine(std::size_t rank) { return *engines_[rank]; }
  Book& book() { return *book_; }
  std::uint64_t landed() const { return landed_; }

  // Turns in any order, many of one rank before another's, until all are idle. False if a second brings nothing.
  bool run() {
    for (int still = 0; still < 1000;) {
      bool moved = false, idle = true;
      for (std::size_t turn = 0; turn < 2 * engines_.size(); ++turn) {
        Engine& engine = *engines_[turns_.below(engines_.size())];
        for (std::uint64_t pass = turns_.below(6); pass > 0; --pass) moved = engine.progress() || moved;
      }
      for (auto& engine : engines_) moved = engine->progress() || moved;
      if (!moved) now_ += 1ms;
      if (!moved)
        for (auto& engine : engines_) moved = engine->attend(now_) || moved;
      for (auto& engine : engines_) idle = idle && engine->idle();
      if (idle) return true;
      still = moved ? 0 : still + 1;
    }
    return false;
  }

 private:
  Random turns_;
  std::shared_ptr<Book> book_ = std::make_shared<Book>();
  std::uint64_t landed_ = 0;
  std::vector<std::unique_ptr<Engine>> engines_;
  TimePoint now_;
};

// An all-reduce of the catalogue, three times over, from an odd address on.
class AllReduces {
 public:
  AllReduces(Algorithm algorithm, std::uint32_t size, bool in_place, std::uint64_t seed)
      : world_(size, seed),
        algorithm_(algorithm),
        size_(size),
        count_(size * limits::loan_bytes_min / sizeof(float) * 2 + 17 * size + 1) {
    const std::size_t offset = mix64(seed) % 1500;
    for (std::uint32_t r = 0; r < size; ++r) {
      inputs_.push_back(world_.book().allocate_floats(count_ + offset).subspan(offset));
      outputs_.push_back(in_place ? inputs_.back()
                                  : world_.book().allocate_floats(count_ + 2 * offset).subspan(2 * offset));
    }
  }

  void run() {
    for (std::uint64_t call = 1; call <= 3; ++call) {
      fill(call);
      std::vector<std::shared_ptr<Completion>> completions;
      for (std::uint32_t r = 0; r < size_; ++r)
        submit(r, call, completions.emplace_back(std::make_shared<Completion>()));
      ASSERT_TRUE(world_.run()) << "nothing moves any more";
      for (std::uint32_t r = 0; r < size_; ++r) {
        ASSERT_TRUE(completions[r]->done() && completions[r]->status().ok()) << "rank " << r;
        check(r, call);
      }
    }
  }
  std::uint64_t landed() const { return world_.landed(); }

 private:
  static float value(std::uint64_t call, std::uint32_t rank, std::size_t i) {
    return static_cast<float>((rank + call) * (i % 1000 + 1));
  }
  void fill(std::uint64_t call) {
    for (std::uint32_t r = 0; r < size_; ++r)
      for (std::size_t i = 0; i < count_; ++i) inputs_[r][i] = value(call, r, i);
  }
  void submit(std::uint32_t r, std::uint64_t call, std::shared_ptr<Completion> completion) {
    const Schedule schedule = make_schedule({Collective::all_reduce, algorithm_, size_, 0, 1, {}}, r);
    Request request;
    request.sequence = call;
    request.schedule = std::make_shared<const Schedule>(schedule);
    request.call.collective = Collective::all_reduce;
    request.call.dtype = DType::f32;
    request.call.algorithm = algorithm_;
    request.call.count = count_;
    request.input = inputs_[r].data();
    request.output = outputs_[r].data();
    request.input_layout = request.output_layout = layout_for(schedule.recipe, schedule.shape, count_);
    request.deadline = Deadline::at(TimePoint::max());
    world_.engine(r).submit(std::make_unique<Operation>(std::move(request), kEpoch, std::move(completion)));
  }
  void check(std::uint32_t r, std::uint64_t call) const {
    for (std::size_t i = 0; i < count_; ++i) {
      float sum = 0;
      for (std::uint32_t from = 0; from < size_; ++from)
        sum += value(call, from, i);  // whole numbers below 2^24: exact
      ASSERT_EQ(outputs_[r][i], sum) << "call " << call << " rank " << r << " element " << i << " of " << count_;
    }
  }

  World world_;
  const Algorithm algorithm_;
  const std::uint32_t size_;
  const std::size_t count_;
  std::vector<std::span<float>> inputs_, outputs_;
};

TEST(EngineLanding, SumsRightByEveryAlgorithmInAnyOrderOfTurns) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.collective != Collective::all_reduce) continue;
    for (const std::uint32_t size : {2u, 3u, 4u, 7u})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(fmt::format("{} world {} seed {}", name_of(entry.algorithm), size, seed));
        AllReduces calls(entry.algorithm, size, seed % 2 == 0, seed);
        calls.run();
        if (HasFatalFailure()) return;
      }
  }
}

// From the second call on, when the streams are open, each block goes to every other rank by landing, but for what lies before and
// after its whole pages.
TEST(EngineLanding, TheBlocksOfATwoShotLand) {
  for (const bool in_place : {true, false}) {
    AllReduces calls(Algorithm::two_shot, 4, in_place, 5);
    calls.run();
    const std::uint64_t block_pages = 2 * limits::loan_bytes_min - 2 * 4096;
    EXPECT_GE(calls.landed(), 2 * 4 * 3 * block_pages);
  }
}

}  // namespace
}  // namespace gradsync
