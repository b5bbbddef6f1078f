#include "comm/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random.hpp"
#include "comm/pmi.hpp"
#include "comm/rendezvous_url.hpp"
#include "comm/sockets.hpp"
#include "comm/store_client.hpp"
#include "comm/store_file.hpp"
#include "comm/store_rooms.hpp"
#include "comm/store_server.hpp"

namespace gradsync {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::chrono_literals;
using namespace store_protocol;

Deadline soon() { return Deadline::after(10s); }

std::unique_ptr<StoreServer> serve(const std::string& job = {}) {
  auto server = StoreServer::start(*parse_address("127.0.0.1"), job);
  EXPECT_TRUE(server) << server.status().message;
  return std::move(*server);
}

// A program that blocks a signal to fetch it, after the library has started its thread.
int fetch_a_blocked_signal() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  ::sigaddset(&wanted, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
  ::kill(::getpid(), SIGUSR1);
  const timespec patience{10, 0};
  return ::sigtimedwait(&wanted, nullptr, &patience) == SIGUSR1 ? 0 : 1;
}

TEST(StoreServer, LeavesTheProgramItsSignals) {
  EXPECT_EXIT(
      {
        const auto server = serve();
        ::_exit(fetch_a_blocked_signal());
      },
      testing::ExitedWithCode(0), "");
}

StoreClient::Attempt enter(const StoreServer& server, const StoreIdentity& identity) {
  return StoreClient::connect({server.address(), {}}, identity, soon(), soon());
}

void expect_strangers(const StoreServer& server, std::uint64_t count) {
  const Deadline deadline = soon();
  while (server.strangers() < count && !deadline.passed()) std::this_thread::yield();
  EXPECT_EQ(server.strangers(), count);
}

TEST(ArrivalText, CountsAndNamesAtMostEight) {
  EXPECT_EQ(arrival_text({true, true, false, true}), "3 of 4 ranks arrived; missing rank 2");
  EXPECT_EQ(arrival_text({false, true, false}), "1 of 3 ranks arrived; missing ranks 0, 2");
  EXPECT_EQ(arrival_text({true}), "all 1 ranks arrived");
  EXPECT_EQ(arrival_text(std::vector<bool>(10, false)),
            "0 of 10 ranks arrived; missing ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST(Store, GathersPutsAndGets) {
  const auto server = serve();
  auto a = enter(*server, {"job", 0, 2, 1}), b = enter(*server, {"job", 1, 2, 2});
  ASSERT_TRUE(a.client && b.client) << a.status.message << b.status.message;
  EXPECT_EQ(a.client->job(), b.client->job());
  std::thread other([&] {
    const auto got = b.client->gather("x", std::string(1024, 'b'), soon());
    ASSERT_TRUE(got) << got.status().message;
    EXPECT_THAT(*got, ElementsAre("", std::string(1024, 'b')));
    const auto value = b.client->get("key", soon());  // before or after the put
    ASSERT_TRUE(value) << value.status().message;
    EXPECT_EQ(value->size(), limits::store_value_bytes_max);
  });
  const auto got = a.client->gather("x", "", soon());
  ASSERT_TRUE(got) << got.status().message;
  EXPECT_THAT(*got, ElementsAre("", std::string(1024, 'b')));
  EXPECT_TRUE(a.client->put("key", std::string(limits::store_value_bytes_max, 'v'), soon()));
  other.join();
}

TEST(Store, OneThatServesAJobTurnsOthersAway) {
  const auto server = serve("mine");
  const auto other = enter(*server, {"theirs", 0, 1, 1});
  EXPECT_EQ(other.answer, StoreClient::Answer::other_job);
  EXPECT_THAT(other.status.message, HasSubstr("serves job mine, not theirs"));
  EXPECT_TRUE(enter(*server, {"mine", 0, 1, 1}).client);
}

TEST(Store, StrangersAreDroppedAndCounted) {
  const auto server = serve();
  auto member = enter(*server, {"job", 0, 2, 1});
  ASSERT_TRUE(member.client);
  std::string noise(1 << 20, '\0');
  Random random(1);
  for (char& c : noise) c = static_cast<char>(random.next());
  const std::string opening(kOpening);
  std::vector<std::string> said = {"",
                                   "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                                   noise,
                                   opening + noise,
                                   opening + frame(Request::gather, "x"),
                                   opening + frame(Request::hello, "short"),
                                   opening + std::string("\xff\xff\xff\xff\x01", 5)};
  for (std::size_t bytes = 1; bytes <= 7; ++bytes) said.push_back(opening.substr(0, bytes));
  std::uint64_t expected = 0;
  for (const std::string& text : said) {
    auto socket = connect_tcp(server->address());
    ASSERT_TRUE(socket);
    (void)send_all(socket->get(), text, Deadline::after(5s));
    socket->reset();
    expect_strangers(*server, ++expected);
  }
  std::vector<Descriptor> idle;
  for (int i = 0; i < 400; ++i) {
    auto socket = connect_tcp(server->address());
    ASSERT_TRUE(socket);
    idle.push_back(std::move(*socket));
  }
  auto other = enter(*server, {"job", 1, 2, 2});
  ASSERT_TRUE(other.client) << other.status.message;
  EXPECT_GE(server->strangers(), expected + 400 - limits::handshakes_pending_max);
  std::thread thread([&] { EXPECT_TRUE(other.client->gather("x", "", soon())); });
  EXPECT_TRUE(member.client->gather("x", "", soon()));
  thread.join();
}

TEST(Store, AMemberThatBreaksTheProtocolIsClosedAndTheOthersHearIt) {
  const auto server = serve();
  auto good = enter(*server, {"job", 0, 2, 1});
  ASSERT_TRUE(good.client);
  auto bad = connect_tcp(server->address());
  ASSERT_TRUE(bad);
  const store_protocol::Hello hello{"job", 1, 2, 9};
  ASSERT_TRUE(send_all(
      bad->get(), std::string(kOpening) + frame(Request::hello, encode(hello)) + frame(static_cast<Request>(99), ""),
      soon()));
  const auto got = good.client->gather("x", "", soon());
  ASSERT_FALSE(got);
  EXPECT_EQ(got.status().code, ErrorCode::peer_lost);
  EXPECT_EQ(got.status().peer, 1);
}

TEST(Store, FramesSurviveAnySplitAndNoiseNeverCrashesTheDecoders) {
  Random random(7);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string body(random.below(40), '\0');
    for (char& c : body) c = static_cast<char>(random.below(3) ? random.below(4) : random.next());
    (void)store_protocol::decode_hello(body), (void)decode_named(body), (void)decode_gone(body),
        (void)decode_refused(body);
    (void)decode_blobs(body, static_cast<std::uint32_t>(random.below(5)));
    bool bad = false;
    while (cut_frame(body, 16, bad)) {}
  }
  const std::string one = frame(Request::put, encode(Named{"name", "value"}));
  std::string buffer;
  for (std::size_t i = 0; i + 1 < one.size(); ++i) {
    bool bad = false;
    buffer += one[i];
    EXPECT_FALSE(cut_frame(buffer, 100, bad));
  }
  bool bad = false;
  buffer += one.back();
  const auto cut = cut_frame(buffer, 100, bad);
  ASSERT_TRUE(cut);
  EXPECT_EQ(decode_named(cut->body)->value, "value");
}

// Rooms without sockets: connections are numbers.
class Rooms : public testing::Test {
 protected:
  std::string enter(std::uint64_t connection, const std::string& job, std::uint32_t rank, std::uint32_t size,
                    std::uint64_t process) {
    StoreRooms::Out out;
    rooms_.hello(connection, {job, rank, size, process}, out);
    for (const auto& one : out)
      if (one.to == connection && one.close) return decode_refused(one.frame->substr(kFrameHeaderBytes))->why;
    return {};
  }
  std::size_t leave(std::uint64_t connection) {
    StoreRooms::Out out;
    rooms_.leave(connection, out);
    return out.size();
  }
  std::uint64_t next_ = 0;
  StoreRooms rooms_{"", [this] { return ++next_; }};
};

TEST_F(Rooms, SecondWorkersWrongRanksAndSizesAreNamed) {
  EXPECT_EQ(enter(1, "j", 0, 3, 10), "");
  EXPECT_EQ(enter(2, "j", 0, 3, 20), "rank 0 is already taken by another worker of this job");
  EXPECT_EQ(enter(3, "j", 0, 3, 10), "rank 0 is already taken by another worker of this job");
  EXPECT_EQ(enter(4, "j", 3, 3, 30), "rank 3 is outside of the world of 3 ranks");
  EXPECT_EQ(enter(5, "j", 0, 0, 30), "world size is 0, expected 1 to 1048576");
  EXPECT_EQ(enter(6, "j", 1, 4, 30), "ranks disagree on the world size: rank 1 says 4, rank 0 says 3");
}

TEST_F(Rooms, AFullRoomIsLeftToItselfAndTheNextOneOpens) {
  EXPECT_EQ(enter(1, "j", 0, 2, 10), "");
  EXPECT_EQ(enter(2, "j", 1, 2, 20), "");
  EXPECT_EQ(enter(3, "j", 1, 2, 30), "rank 1 is already taken by another worker of this job");
  EXPECT_EQ(enter(4, "j", 1, 2, 20), "");
  EXPECT_EQ(rooms_.rooms(), 2u);
  EXPECT_EQ(leave(1), 1u);  // rank 1 is told
  EXPECT_EQ(leave(2), 0u);
  EXPECT_EQ(rooms_.rooms(), 1u);
}

TEST_F(Rooms, WhoComesAfterTheOthersGaveUpHearsWhyOnce) {
  EXPECT_EQ(enter(1, "j", 0, 2, 10), "");
  StoreRooms::Out out;
  ASSERT_TRUE(rooms_.request(1, Request::fail, "the reason", out));
  leave(1);
  EXPECT_EQ(enter(2, "j", 1, 2, 20), "rank 0 left the rendezvous: the reason");
  EXPECT_EQ(rooms_.rooms(), 0u);
  EXPECT_EQ(enter(3, "j", 1, 2, 20), "");
  EXPECT_EQ(enter(4, "j", 0, 2, 10), "");
}

TEST_F(Rooms, ManyJobsThatFailLeaveABoundedNumberOfRooms) {
  for (std::uint64_t i = 1; i <= 20000; ++i) {
    ASSERT_EQ(enter(i, std::to_string(i), 0, 2, 1), "");
    leave(i);
  }
  EXPECT_LE(rooms_.rooms(), 4096u);
}

TEST(FileStore, SaysWhatIsWrongWithTheFile) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("gradsync-test-{:016x}", random_number());
  const auto open = [&] {
    return FileStore::open(
               path, {"", 0, 2, 1}, [](std::uint64_t) {}, Deadline::after(100ms))
        .status()
        .message;
  };
  std::ofstream(path) << "precious notes of the user";
  EXPECT_THAT(open(), HasSubstr("not a file of gradsync"));
  EXPECT_EQ(std::filesystem::file_size(path), 26u);  // untouched
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/etc/passwd", path);
  EXPECT_THAT(open(), HasSubstr("cannot open"));  // a plant is not followed
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_NE(open(), "");
  std::filesystem::remove(path);
}

TEST(FileStore, ASecondLivingRankZeroIsTurnedAway) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("gradsync-test-{:016x}", random_number());
  const auto open = [&](std::uint64_t process) {
    return FileStore::open(
        path, {"", 0, 2, process}, [](std::uint64_t) {}, Deadline::after(1s));
  };
  const auto first = open(process_identity());
  ASSERT_TRUE(first) << first.status().message;
  EXPECT_THAT(open(5).status().message, HasSubstr("rank 0 is already taken by process"));
  std::filesystem::remove(path);
}

TEST(ProcessIdentity, TellsProcessesApart) {
  EXPECT_EQ(process_identity(), process_identity(::getpid()));
  EXPECT_NE(process_identity(), process_identity(::getppid()));
  EXPECT_EQ(process_identity(1 << 30), 0u);
  EXPECT_EQ(ancestor_identity("no such name"), 0u);
}

TEST(Pmi, LinesAndAnExchange) {
  EXPECT_EQ(parse_pmi_line("cmd=get_result rc=0 msg=success value=tcp://1.2.3.4:5/a=b")["value"],
            "tcp://1.2.3.4:5/a=b");
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const Descriptor ours(sockets[0]), launcher(sockets[1]);
  PmiClient pmi = PmiClient::borrow(ours.get());
  const auto answer = [&](const std::string& expected, const std::string& line) {
    std::string heard(expected.size(), '\0');
    ASSERT_TRUE(receive_all(launcher.get(), as_writable_bytes(heard), soon()));
    EXPECT_EQ(heard, expected);
    ASSERT_TRUE(send_all(launcher.get(), line, soon()));
  };
  std::thread thread([&] {
    answer("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_1\n");
    answer("cmd=put kvsname=kvs_1 key=k value=v\n", "cmd=put_result rc=0 msg=success\n");
    answer("cmd=barrier_in\n", "cmd=barrier_out\n");
    answer("cmd=get kvsname=kvs_1 key=k\n", "cmd=get_result rc=0 msg=success value=v\n");
    answer("cmd=get kvsname=kvs_1 key=none\n", "cmd=get_result rc=-1 msg=key_none_not_found value=unknown\n");
    answer("cmd=barrier_in\n", "HTTP/1.1 400 what\n");
  });
  EXPECT_TRUE(pmi.start(soon()));
  EXPECT_TRUE(pmi.put("k", "v", soon()));
  EXPECT_TRUE(pmi.barrier(soon()));
  EXPECT_EQ(*pmi.get("k", soon()), "v");
  EXPECT_EQ(*pmi.get("none", soon()), "");
  EXPECT_EQ(pmi.barrier(soon()).code, ErrorCode::protocol);
  EXPECT_EQ(pmi.barrier(Deadline::after(10ms)).code, ErrorCode::timeout);
  thread.join();
}

TEST(RendezvousUrl, KnownForms) {
  const auto tcp = parse_rendezvous("tcp://[fd00::1]:80/a/b");
  ASSERT_TRUE(tcp);
  EXPECT_EQ(tcp->host, "fd00::1");
  EXPECT_EQ(tcp->port, 80);
  EXPECT_EQ(tcp->job, "a/b");
  EXPECT_EQ(parse_rendezvous("unix-abstract://name/job")->name, "name");
  EXPECT_EQ(parse_rendezvous("file:///tmp/x")->name, "/tmp/x");
  EXPECT_EQ(parse_rendezvous("pmi://fd:0")->port, 0);
  EXPECT_FALSE(parse_rendezvous("tcp://h:1/" + std::string(300, 'j')));
  EXPECT_FALSE(parse_rendezvous("unix-abstract:///job"));
}

}  // namespace
}  // namespace gradsync
