// Threads that meet at boards and sleep whenever they wait: nobody sleeps for longer than it has to.
#include <poll.h>

#include <thread>

#include "engine/board_for_test.hpp"
#include "transport/test_site.hpp"

namespace gradsync::board_test {
namespace {

constexpr std::uint32_t kRanks = 3;

// One rank: a tiny all-reduce after another, with pauses. It sleeps at once where nothing moves, until it is woken. Returns what went
// wrong.
std::string reduce_and_sleep(Engine& engine, std::uint32_t rank, std::uint64_t calls,
                             std::atomic<std::uint64_t>& slept) {
  const Recipe recipe{Collective::all_reduce, Algorithm::one_shot, kRanks, 0, 1, {}};
  const auto schedule = std::make_shared<const Schedule>(make_schedule(recipe, rank));
  Random pauses(rank + 1);
  for (std::uint64_t sequence = 1; sequence <= calls; ++sequence) {
    if (pauses.below(3000) == 0) std::this_thread::sleep_for(200us);
    for (std::uint64_t i = pauses.below(8) == 0 ? pauses.below(2000) : 0; i > 0; --i) asm volatile("" ::: "memory");
    std::uint64_t value = sequence * (rank + 1);
    Request request;
    request.sequence = sequence;
    request.schedule = schedule;
    request.call = {Collective::all_reduce, DType::u64, ReduceOp::sum, Algorithm::one_shot, 0, 1, 1, 0, 0};
    request.input = request.output = &value;
    request.input_layout = request.output_layout = layout_for(recipe, schedule->shape, 1);
    request.deadline = Deadline::after(60s);
    auto completion = std::make_shared<Completion>();
    engine.submit(std::make_unique<Operation>(std::move(request), 85, completion));
    while (!completion->done()) {
      if (engine.progress()) continue;
      engine.attend(std::chrono::steady_clock::now());
      const bool sleeps = engine.arm();
      pollfd watch{engine.transport().descriptor(), POLLIN, 0};
      const int woken = sleeps ? ::poll(&watch, 1, 20'000) : 1;
      engine.disarm();
      if (sleeps) ++slept;
      if (woken == 0) return fmt::format("rank {} was not woken in call {}", rank, sequence);
    }
    if (!completion->status().ok()) return completion->status().message;
    if (value != sequence * 6) return fmt::format("rank {} call {}: {}", rank, sequence, value);
  }
  return {};
}

void run(std::vector<std::unique_ptr<Transport>> transports, std::uint64_t calls) {
  std::vector<std::thread> threads;
  std::vector<std::string> problems(kRanks);
  std::atomic<std::uint64_t> slept{0};
  std::vector<std::unique_ptr<Engine>> engines;
  for (auto& transport : transports) engines.push_back(std::make_unique<Engine>(std::move(transport)));
  for (std::uint32_t r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] { problems[r] = reduce_and_sleep(*engines[r], r, calls, slept); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
  EXPECT_GT(slept, calls / 100) << "hardly anybody slept: nothing was shown";
}

TEST(BoardSleep, NoWakeUpIsLostBetweenThreads) {
  auto fabric = make_loopback_fabric(kRanks, 4096);
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::uint32_t r = 0; r < kRanks; ++r) transports.push_back(loopback_transport(fabric, r));
  run(std::move(transports), 50'000);
}

TEST(BoardSleep, NoWakeUpIsLostOverSharedMemory) {
  auto sites = std::make_shared<testing::Sites>(kRanks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::uint32_t r = 0; r < kRanks; ++r)
    transports.push_back(testing::open_on(
        sites, {.rank = r, .size = kRanks, .hosts = {0, 0, 0}, .kind = TransportKind::shm, .lanes = 1}));
  run(std::move(transports), 50'000);
}

}  // namespace
}  // namespace gradsync::board_test
