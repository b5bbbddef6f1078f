// What an engine tells of the bytes it waits for, over streams that pass for a network.
#include <gtest/gtest.h>

#include "algorithms/catalogue.hpp"
#include "engine/engine.hpp"
#include "schedule/layouts.hpp"
#include "transport/loopback.hpp"

namespace gradsync {
namespace {

using Awaited = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

constexpr std::size_t kRing = 32u << 10;

// Passes on what these tests need, and keeps what is awaited.
class Network final : public Transport {
 public:
  Network(std::unique_ptr<Transport> inner, Awaited& awaited) : inner_(std::move(inner)), awaited_(awaited) {}
  TransportKind kind() const override { return TransportKind::tcp; }
  Result<std::size_t> send(Peer to, std::span<const std::span<const std::byte>> pieces) override {
    return inner_->send(to, pieces);
  }
  Result<std::span<const std::byte>> peek(Peer from, std::size_t least) override { return inner_->peek(from, least); }
  bool consume(Peer from, std::size_t count) override { return inner_->consume(from, count); }
  void append_senders(Channel channel, std::vector<std::uint32_t>& out) const override {
    inner_->append_senders(channel, out);
  }
  bool remote(std::uint32_t) const override { return true; }
  void await(Peer from, std::uint64_t bytes) override { awaited_.emplace_back(from.rank, bytes); }
  int descriptor() const override { return inner_->descriptor(); }
  bool arm() override { return inner_->arm(); }
  void disarm() override { inner_->disarm(); }
  std::string describe(std::uint32_t rank) const override { return inner_->describe(rank); }

 private:
  std::unique_ptr<Transport> inner_;
  Awaited& awaited_;
};

// Ranks that have called the same, each moved by hand.
class World {
 public:
  World(const Recipe& recipe, std::size_t count) : awaited(recipe.world), data_(recipe.world) {
    auto fabric = make_loopback_fabric(recipe.world, kRing);
    for (std::uint32_t r = 0; r < recipe.world; ++r) {
      engines_.push_back(
          std::make_unique<Engine>(std::make_unique<Network>(loopback_transport(fabric, r), awaited[r])));
      data_[r].resize(count);
      submit(recipe, r);
    }
  }
  Engine& engine(std::uint32_t rank) { return *engines_[rank]; }
  void run(std::uint32_t rank) {
    while (engine(rank).progress()) {}
  }
  Awaited ask(std::uint32_t rank) {
    engine(rank).await();
    return std::exchange(awaited[rank], {});
  }
  const Schedule& schedule(std::uint32_t rank) const { return *schedules_[rank]; }
  std::vector<Awaited> awaited;

 private:
  void submit(const Recipe& recipe, std::uint32_t rank) {
    Request request;
    request.sequence = 1;
    schedules_.push_back(std::make_shared<const Schedule>(make_schedule(recipe, rank)));
    request.schedule = schedules_.back();
    request.call = {recipe.collective, DType::i32, ReduceOp::sum, recipe.algorithm, 0, 1, data_[rank].size(), 0};
    request.input = request.output = data_[rank].data();
    request.input_layout = request.output_layout = layout_for(recipe, request.schedule->shape, data_[rank].size());
    request.deadline = Deadline::at(TimePoint::max());
    request.contributions = recipe.world;
    engine(rank).submit(std::make_unique<Operation>(std::move(request), 77, std::make_shared<Completion>()));
  }
  std::vector<std::vector<std::int32_t>> data_;
  std::vector<std::shared_ptr<const Schedule>> schedules_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

Recipe recipe_of(Collective collective, Algorithm algorithm, std::uint32_t world) {
  return {collective, algorithm, world, 0, 1, {}};
}

TEST(LongWaits, AreForTheRestOfAMessageThatHasBegun) {
  constexpr std::size_t kCount = 200'000, kChunkBytes = kCount / 2 * 4;
  World world(recipe_of(Collective::all_reduce, Algorithm::ring, 2), kCount);
  EXPECT_FALSE(world.engine(0).waits_for_bulk());  // not begun
  world.run(0);
  EXPECT_TRUE(world.engine(0).waits_for_bulk());
  EXPECT_EQ(world.ask(0), Awaited());  // the header may be of another call, and be all that comes
  world.run(1);
  world.run(0);
  EXPECT_TRUE(world.engine(0).waits_for_bulk());
  EXPECT_EQ(world.ask(0), (Awaited{{1, kChunkBytes - (kRing - limits::frame_header_bytes)}}));
}

TEST(LongWaits, AreNotThoseForShortMessages) {
  World world(recipe_of(Collective::all_reduce, Algorithm::ring, 2), limits::bulk_bytes_min / 4 * 2 - 2);
  world.run(0);
  EXPECT_FALSE(world.engine(0).waits_for_bulk());
  world.run(1);
  world.run(0);
  EXPECT_FALSE(world.engine(0).waits_for_bulk());
}

TEST(LongWaits, LeaveOutWhatIsPassedOnAsItComes) {
  World world(recipe_of(Collective::broadcast, Algorithm::tree, 7), 200'000);
  const auto uses = [&](std::uint32_t rank, Verb verb) {
    const auto& steps = world.schedule(rank).steps;
    for (std::uint64_t i = 0; i < steps.size(); ++i)
      if (steps[static_cast<std::size_t>(i)].verb == verb) return true;
    return false;
  };
  std::size_t inner = 0, leaves = 0;
  for (int turn = 0; turn < 3; ++turn)  // the tree's depth
    for (std::uint32_t r = 0; r < 7; ++r) world.run(r);
  for (std::uint32_t r = 0; r < 7; ++r) {
    if (!uses(r, Verb::recv)) continue;
    const bool passes_on = uses(r, Verb::send);
    EXPECT_EQ(world.ask(r).empty(), passes_on) << "rank " << r;
    ++(passes_on ? inner : leaves);
  }
  EXPECT_GT(inner, 0u);
  EXPECT_GT(leaves, 0u);
}

}  // namespace
}  // namespace gradsync
