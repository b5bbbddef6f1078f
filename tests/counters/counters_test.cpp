// What a rank's counters show after a call equals what the simulator says of its schedule, exactly: messages and bytes both
// ways, elements reduced. Real processes; every algorithm of the catalogue, worlds 1 to 9; also where messages are lent.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "algorithms/catalogue.hpp"
#include "base/status.hpp"
#include "gradsync/communicator.hpp"
#include "simulate/traffic.hpp"
#include "support/workers.hpp"

namespace gradsync::test {
namespace {

constexpr std::uint32_t kMostSegments = 3;

std::vector<std::uint64_t> sizes_of(std::uint32_t world) { return {0, 1, world - 1, world + 1, 1000, 100003}; }

struct Case {
  Recipe recipe;
  std::uint64_t count = 0;  // of the message, or of a block where the collective has blocks
  DType dtype = DType::f32;
  bool uneven = false;  // blocks of different sizes

  std::string name() const {
    return fmt::format("{} by {} in {} segments, world {}, root {}, {} {}{}", name_of(recipe.collective),
                       name_of(recipe.algorithm), recipe.segments, recipe.world, recipe.root, count, name_of(dtype),
                       uneven ? ", uneven" : "");
  }
};

bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}
bool may_be_uneven(Collective c) {
  return c == Collective::reduce_scatter || c == Collective::all_gather || c == Collective::all_to_all;
}

// Elements that rank `from` has for rank `to`: any function that both sides know. Other block collectives use from = 0.
std::size_t block(const Case& c, std::size_t from, std::size_t to) {
  return c.uneven ? (from * 5 + to * 3) % 4 * c.count / 2 : c.count;
}
std::vector<std::size_t> blocks_from(const Case& c, std::size_t from) {
  std::vector<std::size_t> counts;
  for (std::size_t to = 0; to < c.recipe.world; ++to) counts.push_back(block(c, from, to));
  return counts;
}
std::vector<std::size_t> blocks_to(const Case& c, std::size_t to) {
  std::vector<std::size_t> counts;
  for (std::size_t from = 0; from < c.recipe.world; ++from) counts.push_back(block(c, from, to));
  return counts;
}
std::size_t total(const std::vector<std::size_t>& counts) {
  std::size_t sum = 0;
  for (std::size_t n : counts) sum += n;
  return sum;
}

Layouts layouts_of(const Case& c, const Shape& shape, std::uint32_t rank) {
  if (c.recipe.collective == Collective::barrier) return Layouts(layout_for(c.recipe, shape, 0));
  if (!c.uneven) return Layouts(layout_for(c.recipe, shape, c.count));
  const auto layout = [&](const std::vector<std::size_t>& counts) {
    return layout_for(c.recipe, shape,
                      std::span<const std::uint64_t>(std::vector<std::uint64_t>(counts.begin(), counts.end())));
  };
  if (c.recipe.collective == Collective::all_to_all) return {layout(blocks_from(c, rank)), layout(blocks_to(c, rank))};
  return Layouts(layout(blocks_from(c, 0)));
}

// Sums of 16-bit floats travel and add up as f32.
Traffic simulated(const Case& c, std::uint32_t rank) {
  const std::uint64_t bytes = reduces(c.recipe.collective) && size_of(c.dtype) == 2 ? 4 : size_of(c.dtype);
  return traffic_of(c.recipe, rank, layouts_of(c, shape_of(c.recipe, rank), rank), bytes);
}

class Rank {
 public:
  explicit Rank(Communicator& comm) : comm_(comm), me_(static_cast<std::uint32_t>(comm.rank())) {}
  // From now on inputs and outputs are registered memory of this size each.
  void use_registered_memory(std::size_t bytes) { registered_ = {comm_.allocate(bytes), comm_.allocate(bytes)}; }

  // Calls it and compares. Memory is reused: values do not matter here.
  void compare(const Case& c) {
    const Counters before = comm_.counters();
    call(c);
    const Counters after = comm_.counters();
    const Traffic live{after.messages_sent - before.messages_sent, after.bytes_sent - before.bytes_sent,
                       after.messages_received - before.messages_received, after.bytes_received - before.bytes_received,
                       after.elements_reduced - before.elements_reduced};
    const Traffic expected = simulated(c, me_);
    ++compared;
    bytes_seen += live.bytes_sent;
    if (live == expected && after.operations == before.operations + 1) return;
    ++different;
    std::printf("rank %u: %s: live %s, simulated %s, %u operations\n", me_, c.name().c_str(), text(live).c_str(),
                text(expected).c_str(), static_cast<unsigned>(after.operations - before.operations));
  }

  unsigned compared = 0, different = 0;
  std::uint64_t bytes_seen = 0;

 private:
  static std::string text(const Traffic& t) {
    return fmt::format("{} messages of {} bytes sent, {} of {} received, {} reduced", t.messages_sent, t.bytes_sent,
                       t.messages_received, t.bytes_received, t.elements_reduced);
  }
  ConstView in(const Case& c, std::size_t count) { return {memory(0, c, count), count, c.dtype}; }
  View out(const Case& c, std::size_t count) { return {memory(1, c, count), count, c.dtype}; }
  std::byte* memory(std::size_t which, const Case& c, std::size_t count) {
    if (registered_[which].bytes() > count * size_of(c.dtype)) return registered_[which].data();
    std::vector<std::byte>& all = which == 0 ? input_ : output_;
    if (all.size() < count * size_of(c.dtype) + 1) all.resize(count * size_of(c.dtype) + 1);
    return all.data();
  }

  void call(const Case& c) {
    const CallOptions options{.algorithm = c.recipe.algorithm, .segments = c.recipe.segments};
    const int root = static_cast<int>(c.recipe.root);
    const std::size_t n = c.count, all = n * c.recipe.world;
    const std::vector<std::size_t> from = c.uneven ? blocks_from(c, 0) : std::vector<std::size_t>();
    switch (c.recipe.collective) {
      case Collective::all_reduce: return comm_.all_reduce(in(c, n), out(c, n), ReduceOp::sum, options);
      case Collective::reduce_scatter:
        if (c.uneven) return comm_.reduce_scatter(in(c, total(from)), out(c, from[me_]), from, ReduceOp::sum, options);
        return comm_.reduce_scatter(in(c, all), out(c, n), ReduceOp::sum, options);
      case Collective::all_gather:
        if (c.uneven) return comm_.all_gather(in(c, from[me_]), out(c, total(from)), from, options);
        return comm_.all_gather(in(c, n), out(c, all), options);
      case Collective::broadcast: return comm_.broadcast(out(c, n), root, options);
      case Collective::reduce: return comm_.reduce(in(c, n), out(c, n), ReduceOp::sum, root, options);
      case Collective::gather: return comm_.gather(in(c, n), out(c, all), root, options);
      case Collective::scatter: return comm_.scatter(in(c, all), out(c, n), root, options);
      case Collective::all_to_all: return exchange(c, options);
      case Collective::barrier: return comm_.barrier(options);
      case Collective::send: return comm_.send(in(c, n), root, options);
      case Collective::recv: comm_.recv(out(c, n), root, options); return;
    }
  }
  void exchange(const Case& c, const CallOptions& options) {
    const std::size_t all = c.count * c.recipe.world;
    if (!c.uneven) return comm_.all_to_all(in(c, all), out(c, all), options);
    const std::vector<std::size_t> sent = blocks_from(c, me_), got = blocks_to(c, me_);
    comm_.all_to_all(in(c, total(sent)), out(c, total(got)), sent, got, options);
  }

  Communicator& comm_;
  std::uint32_t me_;
  std::vector<std::byte> input_, output_;
  std::array<Memory, 2> registered_;
};

// Even ranks send to the next one. A send names the receiver, a recv the sender.
void compare_pair(Rank& rank, std::uint32_t me, Case c) {
  const bool sends = me % 2 == 0;
  c.recipe.collective = sends ? Collective::send : Collective::recv;
  c.recipe.root = sends ? me + 1 : me - 1;
  if (c.recipe.root < c.recipe.world) rank.compare(c);
}

void compare_entry(Rank& rank, const CatalogueEntry& entry, const Communicator& comm) {
  const auto world = static_cast<std::uint32_t>(comm.size()), me = static_cast<std::uint32_t>(comm.rank());
  Case c;
  c.recipe = {entry.collective, entry.algorithm, world, 0, 1, comm.hosts()};
  const std::uint32_t last_root = has_root(entry.collective) ? world - 1 : 0;
  for (c.recipe.segments = 1; c.recipe.segments <= (entry.pipelines ? kMostSegments : 1u); c.recipe.segments += 2)
    for (c.recipe.root = 0; c.recipe.root < world; c.recipe.root += last_root == 0 ? world : last_root)
      for (std::uint64_t count : sizes_of(world))
        for (DType dtype : {DType::f32, DType::bf16})
          for (bool uneven : {false, true}) {
            c.count = count, c.dtype = dtype, c.uneven = uneven;
            if (uneven && (!may_be_uneven(entry.collective) || count == 100003)) continue;
            if (entry.collective == Collective::send) compare_pair(rank, me, c);
            else rank.compare(c);
          }
}

int work(bool registered) {
  Communicator comm = Communicator::create();
  Rank rank(comm);
  if (registered) rank.use_registered_memory(8u << 20);
  for (const CatalogueEntry& entry : catalogue())
    if (entry.collective != Collective::recv) compare_entry(rank, entry, comm);  // with the sends
  comm.barrier();
  if (comm.size() > 1 && rank.bytes_seen == 0) rank.different = 1;
  std::printf("compared %u calls, %u differ\n", rank.compared, rank.different);
  return rank.different == 0 ? 0 : 1;
}

struct World {
  const char* transport;
  std::uint32_t size;
};

class CountersOf : public ::testing::TestWithParam<World> {};

TEST_P(CountersOf, EveryCallEqualTheSimulators) {
  const World world = GetParam();
  WorkerPlan plan;
  plan.program = this_program();
  const bool lent = std::string(world.transport) == "lent";
  plan.arguments = {"worker", lent ? "registered" : "ordinary"};
  plan.size = world.size;
  plan.deadline = 120s;
  // Over tcp as if on two hosts of unequal size, so that hierarchical schedules have both levels.
  for (std::uint32_t rank = 0; rank < world.size; ++rank)
    plan.environment.push_back(
        {fmt::format("GRADSYNC_OPTIONS=timeout=60,transport={},host={}", lent ? "shm" : world.transport,
                     world.transport[0] == 't' && rank >= world.size / 3 ? "b" : "a")});
  const Outcome outcome = run_workers(plan);
  EXPECT_TRUE(outcome.ok()) << outcome.report();
  for (const WorkerEnd& worker : outcome.workers) {
    unsigned compared = 0;
    const std::size_t at = worker.output.rfind("compared ");
    ASSERT_NE(at, std::string::npos) << worker.output;
    ASSERT_EQ(std::sscanf(worker.output.c_str() + at, "compared %u calls", &compared), 1);
    EXPECT_GT(compared, 12 * (catalogue().size() - 2)) << "12 = sizes times element types; send and recv vary";
  }
}

std::vector<World> worlds() {
  std::vector<World> all;
  for (const char* transport : {"shm", "tcp", "lent"})
    for (std::uint32_t size = 1; size <= 9; ++size) all.push_back({transport, size});
  return all;
}
INSTANTIATE_TEST_SUITE_P(World, CountersOf, ::testing::ValuesIn(worlds()), [](const auto& which) {
  return fmt::format("{}_{}", which.param.transport, which.param.size);
});

}  // namespace
}  // namespace gradsync::test

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "worker") {
    try {
      return gradsync::test::work(std::string(argv[2]) == "registered");
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      return 2;
    }
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
