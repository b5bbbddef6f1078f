#include "comm/endpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <thread>

#include "base/random.hpp"
#include "comm/dialer.hpp"
#include "comm/handshake.hpp"
#include "comm/probe.hpp"
#include "comm/sockets.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kJob = 42;
constexpr std::uint64_t kEpoch = 7;

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

TEST(Endpoint, LeavesTheProgramItsSignals) {
  EXPECT_EXIT(
      {
        const auto endpoint = Endpoint::start(*parse_address("127.0.0.1"));
        ::_exit(endpoint ? fetch_a_blocked_signal() : 2);
      },
      testing::ExitedWithCode(0), "");
}

// Two ranks of one host, each with its endpoint.
class Pair : public testing::Test {
 protected:
  void SetUp() override {
    auto members = std::make_shared<Membership>();
    for (auto& endpoint : endpoints_) {
      auto started = Endpoint::start(*parse_address("127.0.0.1"));
      ASSERT_TRUE(started) << started.status().message;
      endpoint = *started;
      endpoint->set_job(kJob);
      Place place;
      place.tcp = endpoint->address();
      place.unix_name = endpoint->unix_name();
      place.label = "here";
      members->places.push_back(place);
    }
    members->job = kJob;
    members->rank = 1;
    members->size = 2;
    members->hosts = {0, 0};
    members_ = members;
  }

  std::unique_ptr<Mailbox> mailbox() { return endpoints_[0]->subscribe(kEpoch, 0, {0, 1}); }
  Dialer::Line dial(TransportKind kind, int memory = -1) {
    EndpointDialer dialer(endpoints_[1], members_, kEpoch);
    auto line = dialer.dial({.kind = kind,
                             .to = 0,
                             .channel = Channel::point_to_point,
                             .lane = kind == TransportKind::tcp ? 1u : 0u,
                             .lanes = kind == TransportKind::tcp ? 3u : 1u,
                             .memory = memory});
    EXPECT_TRUE(line) << line.status().message;
    return std::move(*line);
  }
  Descriptor connection() {
    auto socket = connect_tcp(endpoints_[0]->address());
    EXPECT_TRUE(socket) << socket.status().message;
    return socket ? std::move(*socket) : Descriptor();
  }
  void expect_strangers(std::uint64_t count) {
    const Deadline deadline = Deadline::after(10s);
    while (endpoints_[0]->strangers() < count && !deadline.passed()) std::this_thread::yield();
    EXPECT_EQ(endpoints_[0]->strangers(), count);
  }
  // Waits for it: a handshake that works shows that the endpoint is unharmed.
  static Arrival arrival_of(Mailbox& mailbox) {
    Arrival arrival;
    EXPECT_TRUE(poll_one(mailbox.descriptor(), POLLIN, Deadline::after(10s)));
    EXPECT_TRUE(mailbox.take(arrival));
    return arrival;
  }
  static std::string receive(const Descriptor& socket, std::size_t bytes) {
    std::string text(bytes, '\0');
    const Status status = receive_all(socket.get(), as_writable_bytes(text), Deadline::after(10s));
    EXPECT_TRUE(status) << status.message;
    return text;
  }

  std::array<std::shared_ptr<Endpoint>, 2> endpoints_;
  std::shared_ptr<const Membership> members_;
};

TEST(Handshake, SurvivesTheWireAndRejectsEveryChangedByteThatMatters) {
  const Hello hello{.kind = HelloKind::notice,
                    .channel = Channel::point_to_point,
                    .job = 1,
                    .epoch = 2,
                    .from = 3,
                    .to = 4,
                    .lane = 2,
                    .lanes = 5,
                    .payload_bytes = 6};
  const std::string bytes = encode(hello);
  ASSERT_EQ(bytes.size(), kHelloBytes);
  EXPECT_EQ(decode_hello(as_bytes(bytes)), hello);
  EXPECT_FALSE(decode_hello(as_bytes(bytes.substr(1))));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0xff);
    const auto decoded = decode_hello(as_bytes(changed));
    EXPECT_TRUE(!decoded || *decoded != hello) << "byte " << i;
  }
}

// Whom the failure to open a stream blames: 0 for this process, the number of the step that was wrong otherwise.
int blame_without_descriptors(EndpointDialer& dialer, int memory) {
  const rlimit few{256, 256};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
  while (::dup(0) >= 0) continue;
  for (const TransportKind kind : {TransportKind::tcp, TransportKind::shm}) {
    const bool shm = kind == TransportKind::shm;
    const auto line = dialer.dial({.kind = kind, .to = 0, .memory = shm ? memory : -1});
    if (line || line.status().code != ErrorCode::unavailable || line.status().peer != -1) return 2 + shm;
    if (line.status().message.find("too many open files") == std::string::npos) return 4 + shm;
  }
  return 0;
}

TEST_F(Pair, DoNotBlameAPeerForTheirOwnLackOfDescriptors) {
  const Descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  EndpointDialer dialer(endpoints_[1], members_, kEpoch);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(blame_without_descriptors(dialer, memory.get()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

TEST_F(Pair, LoseAPeerThatIsNotThere) {
  const Descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  EndpointDialer dialer(endpoints_[1], members_, kEpoch);
  endpoints_[0].reset();
  const auto line = dialer.dial({.kind = TransportKind::shm, .to = 0, .memory = memory.get()});
  ASSERT_FALSE(line);
  EXPECT_EQ(line.status().code, ErrorCode::peer_lost) << line.status().message;
  EXPECT_EQ(line.status().peer, 0);
}

TEST_F(Pair, ATcpStreamArrivesWithNothingReadBehindTheHandshake) {
  auto box = mailbox();
  Dialer::Line line = dial(TransportKind::tcp);
  ASSERT_TRUE(send_all(line.socket.get(), line.greeting + "payload", Deadline::after(10s)));
  const Arrival arrival = arrival_of(*box);
  EXPECT_EQ(arrival.kind, TransportKind::tcp);
  EXPECT_EQ(arrival.from, 1u);
  EXPECT_EQ(arrival.channel, Channel::point_to_point);
  EXPECT_EQ(arrival.lane, 1u);
  EXPECT_EQ(arrival.lanes, 3u);
  EXPECT_EQ(receive(arrival.socket, 7), "payload");
  EXPECT_FALSE(poll_one(box->descriptor(), POLLIN, Deadline::after(0s)));
}

TEST_F(Pair, AShmStreamBringsTheSendersMemory) {
  auto box = mailbox();
  const Descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::pwrite(memory.get(), "ring", 4, 0), 4);
  Dialer::Line line = dial(TransportKind::shm, memory.get());
  EXPECT_TRUE(line.greeting.empty());
  ASSERT_TRUE(send_all(line.socket.get(), "x", Deadline::after(10s)));
  const Arrival arrival = arrival_of(*box);
  EXPECT_EQ(arrival.kind, TransportKind::shm);
  std::string content(4, '\0');
  EXPECT_EQ(::pread(arrival.memory.get(), content.data(), 4, 0), 4);
  EXPECT_EQ(content, "ring");
  EXPECT_EQ(receive(arrival.socket, 1), "x");
}

TEST_F(Pair, AHandshakeMayComeByteByByte) {
  auto box = mailbox();
  const Descriptor socket = connection();
  const std::string bytes = encode(Hello{.job = kJob, .epoch = kEpoch, .from = 1, .to = 0});
  for (char c : bytes) ASSERT_TRUE(send_all(socket.get(), std::string(1, c), Deadline::after(10s)));
  EXPECT_EQ(arrival_of(*box).from, 1u);
}

TEST_F(Pair, WhatComesBeforeTheCommunicatorIsKeptForIt) {
  Dialer::Line line = dial(TransportKind::tcp);
  ASSERT_TRUE(send_all(line.socket.get(), line.greeting + "early", Deadline::after(10s)));
  const std::vector<std::uint32_t> to = {0};
  EXPECT_EQ(send_notices(*members_, kEpoch, 1, to, peer_failure(ErrorCode::mismatch, 1, "who called what"),
                         Deadline::after(5s)),
            1u);
  const Deadline deadline = Deadline::after(10s);
  while (endpoints_[0]->parked() < 2 && !deadline.passed()) std::this_thread::yield();
  line.socket.reset();  // the peer may be done already
  auto box = mailbox();
  EXPECT_EQ(endpoints_[0]->parked(), 0u);
  EXPECT_EQ(receive(arrival_of(*box).socket, 5), "early");
  Notice notice;
  ASSERT_TRUE(box->take_notice(notice));
  EXPECT_EQ(notice.from, 1u);
  EXPECT_EQ(notice.status.code, ErrorCode::mismatch);
  EXPECT_EQ(notice.status.peer, 1);
  EXPECT_EQ(notice.status.message, "who called what");
}

TEST_F(Pair, StreamsForACommunicatorThatLeftAreClosed) {
  mailbox().reset();
  Dialer::Line line = dial(TransportKind::tcp);
  ASSERT_TRUE(send_all(line.socket.get(), line.greeting, Deadline::after(10s)));
  std::byte none{};
  EXPECT_EQ(receive_all(line.socket.get(), {&none, 1}, Deadline::after(10s)).code, ErrorCode::peer_lost);
  EXPECT_EQ(endpoints_[0]->parked(), 0u);
}

TEST_F(Pair, LongNoticesAreCut) {
  auto box = mailbox();
  const std::vector<std::uint32_t> to = {0, 1};
  EXPECT_EQ(send_notices(*members_, kEpoch, 1, to, failure(ErrorCode::aborted, "{}", std::string(5000, 'x')),
                         Deadline::after(5s)),
            1u);
  ASSERT_TRUE(poll_one(box->descriptor(), POLLIN, Deadline::after(10s)));
  Notice notice;
  ASSERT_TRUE(box->take_notice(notice));
  EXPECT_EQ(notice.status.message, std::string(limits::notice_bytes_max, 'x'));
}

TEST_F(Pair, NoticesToTheDeadEndAtTheDeadlineOrBefore) {
  endpoints_[0].reset();
  const std::vector<std::uint32_t> to = {0};
  EXPECT_EQ(send_notices(*members_, kEpoch, 1, to, failure(ErrorCode::aborted, "x"), Deadline::after(200ms)), 0u);
}

TEST_F(Pair, StrangersAreDroppedAndCounted) {
  std::uint64_t expected = 0;
  const std::string another = encode(Hello{.job = kJob + 1, .epoch = kEpoch, .from = 1, .to = 0});
  std::string noise(1 << 20, '\0');
  Random random(1);
  for (char& c : noise) c = static_cast<char>(random.next());
  std::vector<std::string> said = {"", "GET / HTTP/1.1\r\nHost: a-host-name-that-is-long-enough\r\n\r\n", another,
                                   noise};
  for (std::size_t bytes = 1; bytes <= 7; ++bytes) said.push_back(encode(Hello{.job = kJob}).substr(0, bytes));
  for (const std::string& text : said) {
    Descriptor socket = connection();
    (void)send_all(socket.get(), text, Deadline::after(5s));
    socket.reset();
    expect_strangers(++expected);
  }
  // A memory without a stream, a stream without its memory.
  auto local = connect_abstract(endpoints_[0]->unix_name(), Deadline::after(5s));
  ASSERT_TRUE(local);
  ASSERT_TRUE(
      send_all(local->get(), encode(Hello{.job = kJob, .epoch = kEpoch, .from = 1, .to = 0}), Deadline::after(5s)));
  expect_strangers(++expected);
  auto box = mailbox();
  Dialer::Line line = dial(TransportKind::tcp);
  ASSERT_TRUE(send_all(line.socket.get(), line.greeting, Deadline::after(10s)));
  EXPECT_EQ(arrival_of(*box).from, 1u);
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST_F(Pair, IdleConnectionsPushEachOtherOutAndNotTheJob) {
  const std::size_t before = open_descriptors();
  constexpr std::size_t kIdle = 400;  // at both ends they are ours
  std::vector<Descriptor> idle;
  for (std::size_t i = 0; i < kIdle; ++i) idle.push_back(connection());
  auto box = mailbox();
  Dialer::Line line = dial(TransportKind::tcp);
  ASSERT_TRUE(send_all(line.socket.get(), line.greeting, Deadline::after(10s)));
  const Arrival arrival = arrival_of(*box);
  EXPECT_EQ(arrival.from, 1u);
  EXPECT_LE(open_descriptors(), before + kIdle + limits::handshakes_pending_max + 8);
  EXPECT_GE(endpoints_[0]->strangers(), kIdle - limits::handshakes_pending_max);
}

TEST_F(Pair, ProbesFindTheHostAndRefuseAnotherJob) {
  EXPECT_TRUE(probe_host({endpoints_[0]->unix_name(), kJob, 1, 0}, Deadline::after(5s)));
  EXPECT_FALSE(probe_host({endpoints_[0]->unix_name(), kJob + 1, 1, 0}, Deadline::after(5s)));
  EXPECT_FALSE(probe_host({"gradsync-nobody-listens-here", kJob, 1, 0}, Deadline::after(5s)));
}

TEST_F(Pair, AProbesMemoryThatCouldShrinkIsRefused) {
  const Descriptor memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 4096), 0);
  int sockets[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const Descriptor ours(sockets[0]), theirs(sockets[1]);
  const std::array<std::byte, 8> nonce{};
  EXPECT_FALSE(answer_probe(ours.get(), memory.get(), nonce));
  EXPECT_FALSE(answer_probe(ours.get(), -1, nonce));
  EXPECT_FALSE(answer_probe(ours.get(), memory.get(), {}));
}

TEST(Membership, SubsetsRenumberHostsByFirstAppearance) {
  Membership whole;
  whole.job = 5;
  whole.size = 5;
  whole.hosts = {0, 1, 0, 2, 1};
  for (int i = 0; i < 5; ++i) {
    Place place;
    place.label = std::to_string(i);
    whole.places.push_back(place);
  }
  const std::vector<std::uint32_t> ranks = {4, 2, 1, 3};
  const Membership part = subset(whole, ranks, 1);
  EXPECT_EQ(part.rank, 1u);
  EXPECT_EQ(part.size, 4u);
  EXPECT_EQ(part.job, 5u);
  EXPECT_EQ(part.hosts, (std::vector<std::uint32_t>{0, 1, 0, 2}));
  EXPECT_EQ(part.places[0].label, "4");
}

TEST(Membership, PlacesSurviveTheWireAndNothingShorterDoes) {
  Place place;
  place.tcp = parse_address("fd00::1")->with_port(77);
  place.unix_name = "name";
  place.label = "label";
  place.declared = "declared";
  place.boot = 1;
  place.network = 2;
  const std::string bytes = encode(place);
  ASSERT_TRUE(decode_place(bytes));
  EXPECT_EQ(*decode_place(bytes), place);
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_FALSE(decode_place(bytes.substr(0, i)));
  EXPECT_FALSE(decode_place(bytes + "x"));
}

}  // namespace
}  // namespace gradsync
