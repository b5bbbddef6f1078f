// Registered memory that is read where it lies: between threads, and between processes as far as one process can show it.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "transport/fault.hpp"
#include "transport/loopback.hpp"
#include "transport/pages_for_test.hpp"
#include "transport/test_site.hpp"
#include "transport/transport_suite.hpp"

namespace gradsync {
namespace {

using namespace testing;

constexpr Peer kZero{0, Channel::collective}, kOne{1, Channel::collective};
constexpr std::size_t kBytes = 1u << 20;

struct Two {
  std::shared_ptr<Book> book = std::make_shared<Book>();
  std::unique_ptr<Transport> sender, receiver;
};

Two over_shm() {
  Two two;
  auto sites = std::make_shared<Sites>(2);
  const auto config = [&](std::uint32_t rank) {
    TransportConfig made;
    made.rank = rank, made.size = 2, made.hosts = {0, 0}, made.pages = two.book;
    return made;
  };
  two.sender = open_on(sites, config(0));
  two.receiver = open_on(sites, config(1));
  return two;
}

Two over_loopback() {
  Two two;
  auto fabric = make_loopback_fabric(2, 4096);
  two.sender = loopback_transport(fabric, 0, two.book);
  two.receiver = loopback_transport(fabric, 1, two.book);
  return two;
}

class Lending : public ::testing::TestWithParam<Two (*)()> {};
INSTANTIATE_TEST_SUITE_P(Between, Lending, ::testing::Values(&over_shm, &over_loopback),
                         [](const auto& which) { return which.index == 0 ? "Processes" : "Threads"; });

void fill(std::span<std::byte> into, std::uint64_t seed) {
  const auto bytes = pattern(seed, into.size());
  std::copy(bytes.begin(), bytes.end(), into.begin());
}

std::span<const std::byte> shown(Transport& receiver, Deadline deadline = soon()) {
  while (!deadline.passed()) {
    auto bytes = receiver.peek(kZero, 1);
    if (!bytes.ok() || !bytes->empty()) return bytes.ok() ? *bytes : std::span<const std::byte>();
  }
  return {};
}

TEST_P(Lending, ShowsTheSendersOwnBytes) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(kBytes);
  fill(memory, 1);
  ASSERT_TRUE(two.sender->lends(kOne, memory.subspan(3, 1000)));
  ASSERT_EQ(*two.sender->lend(kOne, memory, 100), std::optional<std::size_t>(0));
  ASSERT_EQ(shown(*two.receiver).size(), 100u);
  memory[7] = std::byte{42};
  EXPECT_EQ(shown(*two.receiver)[7], std::byte{42}) << "not a copy";
  EXPECT_TRUE(two.receiver->consume(kZero, 100));
  EXPECT_EQ(*two.sender->lend(kOne, memory, 100), std::optional<std::size_t>(100));
  EXPECT_TRUE(two.receiver->peek(kZero, 1)->empty()) << "what is not ready is not shown";
  EXPECT_EQ(*two.sender->lend(kOne, memory, kBytes), std::optional<std::size_t>(100));
  std::vector<std::byte> rest(kBytes - 100);
  ASSERT_EQ(*two.receiver->receive(kZero, rest), rest.size());
  EXPECT_EQ(*two.sender->lend(kOne, memory, kBytes), std::optional<std::size_t>(kBytes));
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), memory.begin() + 100));
}

TEST_P(Lending, KeepsTheOrderOfTheStream) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(3000);
  fill(memory, 2);
  const auto before = pattern(3, 1000), behind = pattern(4, 1000);
  ASSERT_TRUE(send_all(*two.sender, kOne, before).ok());
  ASSERT_TRUE(two.sender->lend(kOne, memory, memory.size()).ok());
  std::vector<std::byte> got(4000);
  ASSERT_TRUE(receive_all(*two.receiver, kZero, got).ok());
  EXPECT_EQ(*two.sender->lend(kOne, memory, memory.size()), std::optional<std::size_t>(memory.size()));
  ASSERT_TRUE(send_all(*two.sender, kOne, behind).ok());
  std::vector<std::byte> last(1000);
  ASSERT_TRUE(receive_all(*two.receiver, kZero, last).ok());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), got.begin()));
  EXPECT_TRUE(std::equal(memory.begin(), memory.end(), got.begin() + 1000));
  EXPECT_EQ(last, behind);
}

TEST_P(Lending, WakesWhoSleepsOnEitherSide) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(kBytes);
  constexpr int rounds = 50;
  std::jthread reading([&] {
    std::vector<std::byte> into(kBytes);
    for (int i = 0; i < rounds; ++i) {
      const Status status = receive_all(*two.receiver, kZero, into, Waiting::sleeps);
      ASSERT_TRUE(status.ok()) << status.message;
      ASSERT_EQ(into.front(), static_cast<std::byte>(i));
      ASSERT_EQ(into.back(), static_cast<std::byte>(i));
    }
  });
  const Deadline deadline = soon();
  for (int i = 0; i < rounds; ++i) {
    memory.front() = memory.back() = static_cast<std::byte>(i);
    for (std::size_t read = 0, ready = kBytes / 2; read < kBytes && !deadline.passed(); ready = kBytes) {
      auto lent = two.sender->lend(kOne, memory, ready);
      ASSERT_TRUE(lent.ok() && *lent);
      if (**lent == read && ready == kBytes) wait(*two.sender, Waiting::sleeps, deadline);
      read = **lent;
    }
  }
}

TEST_P(Lending, TakenBackFailsTheReader) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(kBytes);
  ASSERT_TRUE(two.sender->lend(kOne, memory, kBytes).ok());
  ASSERT_EQ(shown(*two.receiver).size(), kBytes);
  two.sender->withdraw();
  EXPECT_FALSE(two.receiver->consume(kZero, kBytes)) << "it may have changed while it was read";
  EXPECT_EQ(two.receiver->peek(kZero, 1).status().code, ErrorCode::peer_lost);
}

TEST_P(Lending, IsNotForOtherMemory) {
  Two two = GetParam()();
  std::vector<std::byte> ordinary(kBytes);
  EXPECT_FALSE(two.sender->lends(kOne, ordinary));
  auto lent = two.sender->lend(kOne, ordinary, kBytes);
  ASSERT_TRUE(lent.ok());
  EXPECT_FALSE(*lent);
  const auto memory = two.book->allocate(4096);
  EXPECT_FALSE(two.sender->lends(kOne, {memory.data() + 1, memory.size()})) << "one byte lies outside";
}

TEST_P(Lending, ReportsAReaderThatLeft) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(kBytes);
  ASSERT_TRUE(two.sender->lend(kOne, memory, kBytes).ok());
  ASSERT_FALSE(shown(*two.receiver).empty());
  two.receiver.reset();
  const Deadline deadline = soon();
  Status status;
  while (status.ok() && !deadline.passed()) {
    status = two.sender->lend(kOne, memory, kBytes).status();
    if (status.ok()) wait(*two.sender, Waiting::sleeps, deadline);
  }
  EXPECT_EQ(status.code, ErrorCode::peer_lost);
}

TEST_P(Lending, CountsWhatAReaderReadBeforeItLeft) {
  Two two = GetParam()();
  const auto memory = two.book->allocate(kBytes);
  ASSERT_TRUE(two.sender->lend(kOne, memory, kBytes).ok());
  std::vector<std::byte> into(kBytes);
  ASSERT_TRUE(receive_all(*two.receiver, kZero, into).ok());
  two.receiver.reset();
  auto lent = two.sender->lend(kOne, memory, kBytes);
  ASSERT_TRUE(lent.ok()) << lent.status().message;
  EXPECT_EQ(*lent, std::optional<std::size_t>(kBytes));
}

TEST_P(Lending, ComesLateAndInPiecesThroughFaults) {
  Two two = GetParam()();
  FaultPlan plan;
  plan.seed = 5, plan.max_piece = 5000, plan.delay_probability = 0.2, plan.delay_max = std::chrono::microseconds(50);
  auto clock = std::make_shared<SteadyClock>();
  two.receiver = fault_transport(std::move(two.receiver), plan, clock);
  two.sender = fault_transport(std::move(two.sender), plan, clock);
  const auto memory = two.book->allocate(kBytes);
  fill(memory, 6);
  std::vector<std::byte> into(kBytes);
  std::size_t got = 0;
  for (const Deadline deadline = soon(); got < kBytes && !deadline.passed();) {
    ASSERT_TRUE(two.sender->lend(kOne, memory, kBytes).ok());
    auto more = two.receiver->receive(kZero, std::span(into).subspan(got));
    ASSERT_TRUE(more.ok()) << more.status().message;
    got += *more;
  }
  EXPECT_TRUE(std::equal(into.begin(), into.end(), memory.begin()));
}

// Between processes -------------------------------------------------------------------------------------------------

std::size_t descriptors() {
  std::size_t count = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("gradsync") != std::string::npos ? 1 : 0;
  return count;
}

void pass_through(Two& two, std::span<const std::byte> memory) {
  std::vector<std::byte> into(memory.size());
  auto lent = two.sender->lend(kOne, memory, memory.size());
  ASSERT_TRUE(lent.ok() && *lent);
  const Status status = receive_all(*two.receiver, kZero, into);
  ASSERT_TRUE(status.ok()) << status.message;
  ASSERT_TRUE(std::equal(into.begin(), into.end(), memory.begin()));
  ASSERT_EQ(*two.sender->lend(kOne, memory, memory.size()), std::optional<std::size_t>(memory.size()));
}

TEST(LendingBetweenProcesses, LeavesNothingOfMemoryThatWasFreed) {
  Two two = over_shm();
  std::size_t descriptors_first = 0, mappings_first = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const auto memory = two.book->allocate(8192);
    fill(memory, i);
    pass_through(two, memory);
    two.book->free_all();
    if (i == 2) descriptors_first = descriptors(), mappings_first = mappings();
  }
  EXPECT_EQ(descriptors(), descriptors_first);
  EXPECT_EQ(mappings(), mappings_first);
  two.sender->arm();  // who goes to sleep says what was freed
  two.sender->disarm();
  two.receiver->arm();
  two.receiver->disarm();
  EXPECT_EQ(mappings(), mappings_first - 1) << "the last one is unmapped too";
}

TEST(LendingBetweenProcesses, MapsABoundedNumberOfPieces) {
  Two two = over_shm();
  const std::size_t before = mappings();
  std::vector<std::span<std::byte>> pieces;
  for (std::uint64_t i = 0; i < 3 * limits::pages_of_stream_max; ++i) {
    pieces.push_back(two.book->allocate(4096));
    fill(pieces.back(), i);
  }
  for (int round = 0; round < 2; ++round)
    for (const auto& piece : pieces) pass_through(two, piece);
  EXPECT_LE(mappings(), before + pieces.size() + limits::pages_of_stream_max + 2) << "2: a ring, mapped on both sides";
}

TEST(LendingBetweenProcesses, ThatCannotBeMappedIsSentInstead) {
  Two two = over_shm();
  Descriptor unsealed(::memfd_create("gradsync-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  auto mapping = Mapping::shared(unsealed.get(), kBytes);
  ASSERT_TRUE(mapping.ok());
  const auto memory = two.book->keep(std::make_shared<Pages>(1, std::move(unsealed), std::move(*mapping)));
  fill(memory, 8);
  ASSERT_TRUE(two.sender->lend(kOne, memory, kBytes).ok());
  const Deadline deadline = soon();
  for (bool refused = false; !refused && !deadline.passed();) {
    ASSERT_TRUE(two.receiver->peek(kZero, 1).ok());
    auto lent = two.sender->lend(kOne, memory, kBytes);
    ASSERT_TRUE(lent.ok()) << lent.status().message;
    refused = !*lent;
  }
  EXPECT_FALSE(two.sender->lends(kOne, memory));
  std::vector<std::byte> into(1000);
  ASSERT_TRUE(send_all(*two.sender, kOne, memory.first(1000)).ok());
  ASSERT_TRUE(receive_all(*two.receiver, kZero, into).ok());
  EXPECT_TRUE(std::equal(into.begin(), into.end(), memory.begin()));
}

TEST(LendingBetweenProcesses, GivesFreedPagesBackWhileAPeerHasThemMapped) {
  auto pages = Pages::create(1, kBytes);
  ASSERT_TRUE(pages.ok());
  const Descriptor peers(::fcntl((*pages)->memory(), F_DUPFD_CLOEXEC, 0));
  auto mapped = Mapping::shared_for_reading(peers.get(), kBytes);
  ASSERT_TRUE(mapped.ok());
  (*pages)->bytes()[5] = std::byte{1};
  ASSERT_EQ(mapped->bytes()[5], std::byte{1});
  struct stat info {};
  ASSERT_EQ(::fstat(peers.get(), &info), 0);
  EXPECT_GE(static_cast<std::size_t>(info.st_blocks) * 512, kBytes);
  *pages = nullptr;
  ASSERT_EQ(::fstat(peers.get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(mapped->bytes()[5], std::byte{0}) << "and who still looks reads zeros";
}

TEST(LendingBetweenProcesses, OutlivesTheKilledSenderAndLeavesNothing) {
  const std::size_t before = mappings();
  {
    auto sites = std::make_shared<Sites>(2);
    const auto config = [](std::uint32_t rank, std::shared_ptr<Book> book) {
      TransportConfig made;
      made.rank = rank, made.size = 2, made.hosts = {0, 0}, made.pages = std::move(book);
      return made;
    };
    const pid_t child = ::fork();
    if (child == 0) {
      auto book = std::make_shared<Book>();
      auto sender = open_on(sites, config(0, book));
      const auto memory = book->allocate(kBytes);
      fill(memory, 9);
      if (!sender->lend(kOne, memory, kBytes).ok()) ::_exit(1);
      for (;;) ::pause();
    }
    auto receiver = open_on(sites, config(1, nullptr));
    sites->sites[0] = {};  // the child's listeners are its own
    const auto bytes = shown(*receiver);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_EQ(bytes.size(), kBytes);
    const auto expected = pattern(9, kBytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin())) << "what was lent is still there";
    EXPECT_TRUE(receiver->consume(kZero, kBytes));
    Status status;
    for (const Deadline deadline = soon(); status.ok() && !deadline.passed();) {
      status = receiver->peek(kZero, 1).status();
      if (status.ok()) wait(*receiver, Waiting::sleeps, deadline);
    }
    EXPECT_EQ(status.code, ErrorCode::peer_lost);
  }
  EXPECT_EQ(mappings(), before);
}

}  // namespace
}  // namespace gradsync
