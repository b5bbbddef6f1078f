#include "comm/rendezvous.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "comm/dialer.hpp"
#include "comm/sockets.hpp"
#include "comm/store_server.hpp"

namespace gradsync {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

Address loopback() { return *parse_address("127.0.0.1"); }

std::string url_of(const StoreServer& server, const std::string& job) {
  return fmt::format("tcp://{}/{}", text(server.address()), job);
}

std::string fresh_name(const std::string& what) {
  return fmt::format("gradsync-test-{}-{:016x}", what, random_number());
}

Options options_of(std::int64_t rank, std::int64_t size, const std::string& rendezvous) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = rendezvous;
  options.start_timeout = 20s;
  return options;
}

// Joins all of `options`, a thread each.
std::vector<Result<Joined>> join_all(const std::vector<Options>& options) {
  std::vector<std::optional<Result<Joined>>> slots(options.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.size(); ++i) threads.emplace_back([&, i] { slots[i].emplace(join(options[i])); });
  for (auto& thread : threads) thread.join();
  std::vector<Result<Joined>> results;
  for (auto& slot : slots) results.push_back(std::move(*slot));
  return results;
}

std::vector<Options> world(std::uint32_t size, const std::string& rendezvous,
                           const std::vector<std::string>& hosts = {}) {
  std::vector<Options> all;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    all.push_back(options_of(rank, size, rendezvous));
    if (!hosts.empty()) all.back().host = hosts[rank];
  }
  return all;
}

void expect_one_group(const std::vector<Result<Joined>>& joined, const std::vector<std::uint32_t>& hosts) {
  for (std::size_t rank = 0; rank < joined.size(); ++rank) {
    ASSERT_TRUE(joined[rank]) << "rank " << rank << ": " << joined[rank].status().message;
    const Membership& membership = joined[rank]->membership;
    EXPECT_EQ(membership.rank, rank);
    EXPECT_EQ(membership.size, joined.size());
    EXPECT_EQ(membership.places, joined[0]->membership.places);
    EXPECT_EQ(membership.job, joined[0]->membership.job);
    EXPECT_NE(membership.job, 0u);
    EXPECT_EQ(membership.hosts, hosts);
    EXPECT_EQ(membership.places[rank].tcp, joined[rank]->endpoint->address());
  }
}

bool readable_soon(int descriptor) { return poll_one(descriptor, 1 /*POLLIN*/, Deadline::after(10s)); }

TEST(Rendezvous, EveryWorldUpToEightMeetsAtATcpStore) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server) << server.status().message;
  for (std::uint32_t size = 1; size <= 8; ++size)
    expect_one_group(join_all(world(size, url_of(**server, fmt::format("job{}", size)))),
                     std::vector<std::uint32_t>(size, 0));
}

TEST(Rendezvous, RankZeroServesAnAbstractSocket) {
  const std::string url = "unix-abstract://" + fresh_name("store") + "/job";
  for (int again = 0; again < 3; ++again) expect_one_group(join_all(world(4, url)), {0, 0, 0, 0});
}

TEST(Rendezvous, AFileIsEnoughAndIsRemoved) {
  const auto path = std::filesystem::temp_directory_path() / fresh_name("file");
  for (int again = 0; again < 3; ++again) {
    expect_one_group(join_all(world(5, "file://" + path.string())), {0, 0, 0, 0, 0});
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(Rendezvous, HostsFollowTheDeclaredLabels) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  std::vector<std::string> seven_and_eight(15, "b");
  std::fill_n(seven_and_eight.begin(), 7, "a");
  std::vector<std::uint32_t> expected(15, 1);
  std::fill_n(expected.begin(), 7, 0u);
  expect_one_group(join_all(world(15, url_of(**server, "7+8"), seven_and_eight)), expected);
  expect_one_group(join_all(world(4, url_of(**server, "1+3"), {"x", "y", "y", "y"})), {0, 1, 1, 1});
  expect_one_group(join_all(world(4, url_of(**server, "each"), {"a", "b", "c", "d"})), {0, 1, 2, 3});
  expect_one_group(join_all(world(5, url_of(**server, "mixed"), {"b", "a", "b", "a", "c"})), {0, 1, 0, 1, 2});
}

TEST(Rendezvous, TheSameProcessesMayMeetAgainWhileTheFirstGroupLives) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const auto first = join_all(world(3, url_of(**server, "job")));
  const auto second = join_all(world(3, url_of(**server, "job")));
  expect_one_group(first, {0, 0, 0});
  expect_one_group(second, {0, 0, 0});
  EXPECT_NE(first[0]->membership.job, second[0]->membership.job);
}

TEST(Rendezvous, FiftyJobsAtOnceStayApart) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  std::vector<Options> all;
  for (int job = 0; job < 50; ++job)
    for (const Options& options : world(2, job % 5 ? url_of(**server, fmt::format("job{}", job))
                                                   : "unix-abstract://" + fresh_name("many") + "/job"))
      all.push_back(options);
  const auto joined = join_all(all);
  std::set<std::uint64_t> jobs;
  for (std::size_t i = 0; i < joined.size(); i += 2) {
    ASSERT_TRUE(joined[i]) << joined[i].status().message;
    ASSERT_TRUE(joined[i + 1]) << joined[i + 1].status().message;
    EXPECT_EQ(joined[i]->membership.places, joined[i + 1]->membership.places);
    jobs.insert(joined[i]->membership.job);
  }
  EXPECT_EQ(jobs.size(), 50u);
}

TEST(Rendezvous, NamesTheMissingRank) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const auto path = std::filesystem::temp_directory_path() / fresh_name("missing");
  for (const std::string& url :
       {url_of(**server, "job"), "file://" + path.string(), "unix-abstract://" + fresh_name("missing") + "/job"}) {
    auto options = world(4, url);
    options.erase(options.begin() + 2);
    for (Options& one : options) one.start_timeout = 1s;
    for (const auto& result : join_all(options)) {
      ASSERT_FALSE(result);
      // The first to give up tells the others, so that theirs may be the loss of a peer.
      EXPECT_THAT(result.status().message, AllOf(HasSubstr(url), HasSubstr("3 of 4 ranks arrived; missing rank 2")));
    }
  }
  std::filesystem::remove(path);
}

TEST(Rendezvous, ARendezvousThatNeverAnswersIsNamedWithTheTimeWaited) {
  auto silent = listen_tcp(loopback());
  ASSERT_TRUE(silent);
  auto options = options_of(0, 2, fmt::format("tcp://{}/job", text(local_address(silent->get()))));
  options.start_timeout = 500ms;
  const auto result = join(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.status().code, ErrorCode::timeout);
  EXPECT_THAT(result.status().message,
              AllOf(HasSubstr(options.rendezvous), HasSubstr("timeout after 0.5 s"), HasSubstr("no answer")));

  silent->reset();  // now nobody listens there
  const auto refused = join(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status().code, ErrorCode::timeout);
  EXPECT_THAT(refused.status().message, HasSubstr("connection refused"));
}

TEST(Rendezvous, AForeignServerIsNotOurProtocol) {
  for (const std::string& answer : {std::string("HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n"),
                                    std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string()}) {
    auto listener = listen_tcp(loopback());
    ASSERT_TRUE(listener);
    std::atomic<bool> stop{false};
    std::thread server([&] {
      while (!stop) {
        if (!poll_one(listener->get(), 1, Deadline::after(50ms))) continue;
        Descriptor socket(::accept(listener->get(), nullptr, nullptr));
        std::string request(30, '\0');
        (void)receive_all(socket.get(), as_writable_bytes(request), Deadline::after(2s));
        (void)send_all(socket.get(), answer, Deadline::after(2s));
      }
    });
    auto options = options_of(0, 2, fmt::format("tcp://{}/job", text(local_address(listener->get()))));
    const auto result = join(options);
    stop = true;
    server.join();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.status().code, ErrorCode::protocol) << result.status().message;
    EXPECT_THAT(result.status().message, HasSubstr("not a gradsync store"));
    if (!answer.empty()) {
      EXPECT_THAT(result.status().message, HasSubstr("(it answered \"" + answer.substr(0, answer.find('\r')) + "\")"));
    }
  }
}

TEST(Rendezvous, RanksThatDisagreeOnTheSizeAllHearIt) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const auto path = std::filesystem::temp_directory_path() / fresh_name("size");
  for (const std::string& url : {url_of(**server, "job"), "file://" + path.string()}) {
    auto options = world(3, url);
    options[2].size = 4;
    for (const auto& result : join_all(options)) {
      ASSERT_FALSE(result);
      EXPECT_THAT(result.status().message, HasSubstr("ranks disagree on the world size: rank"));
    }
  }
  std::filesystem::remove(path);
}

TEST(Rendezvous, BadArgumentsAreNamed) {
  const auto message = [](std::int64_t rank, std::int64_t size, const std::string& url) {
    const auto result = join(options_of(rank, size, url));
    EXPECT_FALSE(result);
    EXPECT_EQ(result.status().code, ErrorCode::invalid_argument) << result.status().message;
    return result.status().message;
  };
  EXPECT_EQ(message(0, 0, "tcp://127.0.0.1:1/j"), "world size is 0, expected 1 to 1048576");
  EXPECT_EQ(message(0, 2000000, "tcp://127.0.0.1:1/j"), "world size is 2000000, expected 1 to 1048576");
  EXPECT_EQ(message(4, 4, "tcp://127.0.0.1:1/j"), "rank 4 is outside of the world of 4 ranks (0 to 3)");
  EXPECT_THAT(message(-1, -1, ""), HasSubstr("GRADSYNC_RANK"));
  EXPECT_THAT(message(0, 2, ""), HasSubstr("no rendezvous"));
  EXPECT_THAT(message(0, 2, "127.0.0.1:80"), HasSubstr("there is no scheme"));
  EXPECT_THAT(message(0, 2, "gopher://x:1/j"), HasSubstr("unknown scheme \"gopher\""));
  EXPECT_THAT(message(0, 2, "tcp://host/j"), HasSubstr("there is no port"));
  EXPECT_THAT(message(0, 2, "tcp://host:0/j"), HasSubstr("port \"0\""));
  EXPECT_THAT(message(0, 2, "tcp://host:99999/j"), HasSubstr("port \"99999\""));
  EXPECT_THAT(message(0, 2, "tcp://::1:5/j"), HasSubstr("brackets"));
  EXPECT_THAT(message(0, 2, "file://relative"), HasSubstr("not absolute"));
}

// A worker process: this program again, running the test below and nothing else. (A fork without exec could not start
// threads under the thread sanitizer.)
pid_t start_worker(std::int64_t rank, std::int64_t size, const std::string& url, const std::string& then) {
  std::vector<std::string> environment = {fmt::format("GRADSYNC_RANK={}", rank), fmt::format("GRADSYNC_SIZE={}", size),
                                          "GRADSYNC_RENDEZVOUS=" + url, "GRADSYNC_OPTIONS=start_timeout=20",
                                          "JOIN_THEN=" + then};
  std::vector<std::string> arguments = {"worker", "--gtest_also_run_disabled_tests",
                                        "--gtest_filter=Worker.DISABLED_Joins", "--gtest_brief=1"};
  std::vector<char*> envp, argv;
  for (std::string& one : environment) envp.push_back(one.data());
  for (std::string& one : arguments) argv.push_back(one.data());
  envp.push_back(nullptr);
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent) ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

TEST(Worker, DISABLED_Joins) {
  const char* then = std::getenv("JOIN_THEN");
  ASSERT_NE(then, nullptr) << "run by the tests below only";
  const Options options = Options::from_environment();
  const auto joined = join(options);
  if (std::string_view(then) == "be refused") {
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.status().code, ErrorCode::invalid_argument);
    EXPECT_THAT(joined.status().message,
                HasSubstr(fmt::format("rank {} is already taken by another worker", options.rank)));
    return;
  }
  ASSERT_TRUE(joined) << joined.status().message;
  EXPECT_EQ(joined->membership.hosts, std::vector<std::uint32_t>(static_cast<std::size_t>(options.size), 0));
  while (std::string_view(then) == "stay") ::pause();
}

int exit_code(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Rendezvous, ASecondWorkerOfARankIsTurnedAway) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const std::string url = url_of(**server, "job");
  auto first = join_all(world(2, url));
  expect_one_group(first, {0, 0});
  const pid_t late = start_worker(1, 2, url, "be refused");
  EXPECT_EQ(exit_code(late), 0);
}

TEST(Rendezvous, ProcessesMeetWhateverTheStore) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const auto path = std::filesystem::temp_directory_path() / fresh_name("processes");
  for (const std::string& url :
       {url_of(**server, "job"), "file://" + path.string(), "unix-abstract://" + fresh_name("p") + "/job"}) {
    for (std::uint32_t size : {2u, 3u, 8u}) {
      std::vector<pid_t> children;
      for (std::uint32_t rank = 0; rank < size; ++rank) children.push_back(start_worker(rank, size, url, "leave"));
      for (pid_t child : children) EXPECT_EQ(exit_code(child), 0) << url << ", " << size << " ranks";
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Rendezvous, ALeftoverFileOfAKilledJobConfusesNobody) {
  const auto path = std::filesystem::temp_directory_path() / fresh_name("leftover");
  const std::string url = "file://" + path.string();
  for (std::uint32_t killed_size : {3u, 4u}) {
    // Ranks 0 and 2 of an earlier job arrive and are killed while they wait for rank 1.
    std::vector<pid_t> children;
    for (std::uint32_t rank : {0u, 2u}) children.push_back(start_worker(rank, killed_size, url, "leave"));
    const Deadline deadline = Deadline::after(10s);
    const auto bytes = [&] {
      std::error_code none;
      return std::filesystem::exists(path) ? std::filesystem::file_size(path, none) : 0;
    };
    while (bytes() < 200 && !deadline.passed()) std::this_thread::sleep_for(1ms);  // both have brought their places
    ASSERT_GE(bytes(), 200u);
    for (pid_t child : children) ::kill(child, SIGKILL), exit_code(child);
    ASSERT_TRUE(std::filesystem::exists(path));
    // Rank 1 of the new job comes first and finds a file that lacks only it.
    std::vector<std::optional<Result<Joined>>> joined(3);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { joined[1].emplace(join(options_of(1, 3, url))); });
    const auto before = bytes();
    const Deadline entered = Deadline::after(killed_size == 3 ? 10s : 50ms);
    while (bytes() == before && !entered.passed()) std::this_thread::sleep_for(1ms);
    for (std::uint32_t rank : {0u, 2u})
      threads.emplace_back([&, rank] { joined[rank].emplace(join(options_of(rank, 3, url))); });
    for (auto& thread : threads) thread.join();
    std::vector<Result<Joined>> results;
    for (auto& one : joined) results.push_back(std::move(*one));
    expect_one_group(results, {0, 0, 0});
    EXPECT_FALSE(std::filesystem::exists(path));
  }
}

TEST(Rendezvous, RankZeroServesOnTheFirstFreePortAndTheOthersFindIt) {
  // A foreign service holds the first port, as torchrun's own store does.
  auto foreign = listen_tcp(loopback());
  ASSERT_TRUE(foreign);
  const Address at = local_address(foreign->get());
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop)
      if (poll_one(foreign->get(), 1, Deadline::after(50ms))) Descriptor(::accept(foreign->get(), nullptr, nullptr));
  });
  const std::string url = fmt::format("host0://{}/job", text(at));
  for (int again = 0; again < 2; ++again) expect_one_group(join_all(world(3, url)), {0, 0, 0});
  stop = true;
  server.join();
}

TEST(Rendezvous, ADeadRankBecomesANoticeToItsCommunicators) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  const std::string url = url_of(**server, "job");
  const pid_t child = start_worker(2, 3, url, "stay");
  auto options = world(3, url);
  options.pop_back();
  auto joined = join_all(options);
  ASSERT_TRUE(joined[0] && joined[1]);
  auto all = joined[0]->endpoint->subscribe(1, 0, {0, 1, 2});
  auto with_it = joined[0]->endpoint->subscribe(2, 1, {2, 0});
  auto without = joined[0]->endpoint->subscribe(3, 0, {0, 1});
  ::kill(child, SIGKILL);
  Notice notice;
  ASSERT_TRUE(readable_soon(all->descriptor()));
  ASSERT_TRUE(all->take_notice(notice));
  EXPECT_EQ(notice.status.code, ErrorCode::peer_lost);
  EXPECT_EQ(notice.status.peer, 2);
  ASSERT_TRUE(readable_soon(with_it->descriptor()));
  ASSERT_TRUE(with_it->take_notice(notice));
  EXPECT_EQ(notice.status.peer, 0);
  auto late = joined[0]->endpoint->subscribe(4, 0, {0, 2});
  ASSERT_TRUE(late->take_notice(notice));
  EXPECT_EQ(notice.status.peer, 1);
  EXPECT_FALSE(without->take_notice(notice));
  EXPECT_EQ(exit_code(child), 128 + SIGKILL);
}

TEST(Rendezvous, WhoLeavesInOrderIsNotMourned) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  auto joined = join_all(world(3, url_of(**server, "job")));
  expect_one_group(joined, {0, 0, 0});
  auto mailbox = joined[0]->endpoint->subscribe(1, 0, {0, 1, 2});
  *joined[1] = Joined{};
  // The end of the store comes after all that it has told: when it is over, no notice is on its way.
  server->reset();
  *joined[2] = Joined{};
  Notice notice;
  EXPECT_FALSE(poll_one(mailbox->descriptor(), 1, Deadline::after(100ms)));
  EXPECT_FALSE(mailbox->take_notice(notice));
}

TEST(Rendezvous, AForkedChildDoesNotSayGoodbye) {
  auto server = StoreServer::start(loopback());
  ASSERT_TRUE(server);
  auto joined = join_all(world(2, url_of(**server, "job")));
  expect_one_group(joined, {0, 0});
  auto mailbox = joined[0]->endpoint->subscribe(1, 0, {0, 1});
  const pid_t child = ::fork();
  if (child == 0) {
    joined.clear();  // the child's copies
    ::_exit(0);
  }
  EXPECT_EQ(exit_code(child), 0);
  // Both are still heard.
  const Membership& membership = joined[1]->membership;
  const std::vector<std::uint32_t> to = {0};
  EXPECT_EQ(send_notices(membership, 1, 1, to, failure(ErrorCode::aborted, "why"), Deadline::after(5s)), 1u);
  ASSERT_TRUE(readable_soon(mailbox->descriptor()));
  Notice notice;
  ASSERT_TRUE(mailbox->take_notice(notice));
  EXPECT_EQ(notice.status.message, "why");
}

}  // namespace
}  // namespace gradsync
