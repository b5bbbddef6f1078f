// N1, N3: start-up where names, ports and neighbours are not what one would wish.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "comm/sockets.hpp"
#include "comm/store_server.hpp"
#include "support/network.hpp"
#include "world.hpp"

namespace gradsync::cases {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

void expect_sums(Communicator& comm) {
  std::vector<std::int32_t> x(3000, comm.rank() + 1);
  comm.all_reduce(view(x), ReduceOp::sum);
  EXPECT_EQ(x.back(), comm.size() * (comm.size() + 1) / 2);
  comm.barrier();
}

// N1 ---------------------------------------------------------------------------------------------------------------

// Gives the calling thread names of its own: what `entry` says, as /etc/hosts, and the host's own name.
void set_names(const std::string& host, const std::string& entry) {
  char path[] = "/tmp/gradsync-hosts-XXXXXX";
  const int file = ::mkstemp(path);
  const std::string text = "127.0.0.1 localhost\n" + entry + "\n";
  ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::fchmod(file, 0644);
  ::close(file);
  const bool mounted = ::unshare(CLONE_NEWNS | CLONE_NEWUTS) == 0 && ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount(path, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  ::unlink(path);
  ASSERT_TRUE(mounted) << "needs root";
  ASSERT_EQ(::sethostname(host.data(), host.size()), 0);
}

struct Join {
  Communicator comm;
  Status status;
};
Join join(const std::string& rendezvous, std::int64_t rank, std::chrono::nanoseconds patience) {
  Join joined;
  Options options;
  options.rank = rank, options.size = 2;
  options.rendezvous = rendezvous;
  options.timeout = 10s;
  options.start_timeout = patience;
  try {
    joined.comm = Communicator::create(options);
  } catch (const Error& error) {
    joined.status = error.status();
  }
  return joined;
}

// Two ranks on two hosts that meet at a store on the first, found by its name: there 127.0.1.1, elsewhere its address.
std::vector<Join> join_by_name(const test::Network& network, std::chrono::nanoseconds patience) {
  std::unique_ptr<StoreServer> server;
  network.inside(0, [&] {
    auto started = StoreServer::start(*parse_address("0.0.0.0"));
    throw_if_failed(started.status());
    server = *std::move(started);
  });
  const std::string url = fmt::format("tcp://alpha:{}/job", server->address().port);
  std::vector<Join> joins(2);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      network.inside(rank, [&] {
        set_names(rank == 0 ? "alpha" : "beta", (rank == 0 ? std::string("127.0.1.1") : network.address(0)) + " alpha");
        joins[rank] = join(url, rank, patience);
      });
    });
  for (std::thread& thread : threads) thread.join();
  return joins;
}

TEST(CaseN1, AHostNameThatMeansLoopbackAtHomeLeadsToARoutableAddress) {
  const test::Network network(2);
  std::vector<Join> joins = join_by_name(network, 15s);
  std::vector<Communicator> ranks;
  for (Join& joined : joins) {
    ASSERT_TRUE(joined.status.ok()) << joined.status.message;
    ranks.push_back(std::move(joined.comm));
  }
  EXPECT_EQ(ranks[0].hosts(), (std::vector<std::uint32_t>{0, 1}));
  for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_THAT(ranks[rank].describe(static_cast<int>(rank)), HasSubstr(network.address(rank)));
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 2; ++rank) threads.emplace_back([&, rank] { network.inside(rank, [&] { expect_sums(ranks[rank]); }); });
  for (std::thread& thread : threads) thread.join();
}

TEST(CaseN1, WithoutARouteTheErrorListsWhatWasTried) {
  const test::Network network(2);
  network.command(1, {"ip", "link", "set", "eth0", "down"});
  const std::vector<Join> joins = join_by_name(network, 4s);
  EXPECT_THAT(joins[1].status.code, AnyOf(ErrorCode::unavailable, ErrorCode::timeout));
  EXPECT_THAT(joins[1].status.message, HasSubstr(network.address(0)));
  EXPECT_THAT(joins[1].status.message, HasSubstr("eth0")) << "the interfaces that there are";
  EXPECT_EQ(joins[0].status.code, ErrorCode::timeout);
  EXPECT_THAT(joins[0].status.message, HasSubstr("rank 1"));
}

// N3 ---------------------------------------------------------------------------------------------------------------

TEST(CaseN3, FiftyJobsAtOnceOnAHost) {
  std::vector<std::thread> jobs;
  for (int job = 0; job < 50; ++job)
    jobs.emplace_back([job] {
      in_world({.size = 2, .medium = job % 2 == 0 ? Medium::shm : Medium::tcp, .timeout = 30s, .start_timeout = 30s}, expect_sums);
    });
  for (std::thread& job : jobs) job.join();
}

void write_setting(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  ASSERT_TRUE(file.good()) << path;
}

// Listens on `count` ports that the system chooses.
std::vector<Descriptor> occupy_ports(int count) {
  std::vector<Descriptor> held;
  while (static_cast<int>(held.size()) < count) {
    auto listener = listen_tcp(*parse_address("0.0.0.0"));
    if (!listener) break;
    held.push_back(*std::move(listener));
  }
  return held;
}

TEST(CaseN3, AHostWhoseEphemeralPortsAreNearlyAllTaken) {
  const test::Network network(1);
  network.inside(0, [] {
    write_setting("/proc/sys/net/ipv4/ip_local_port_range", "42000 42099");
    const std::vector<Descriptor> held = occupy_ports(80);
    ASSERT_EQ(held.size(), 80u);
    in_world({.size = 3, .medium = Medium::tcp, .start_timeout = 10s}, expect_sums);
  });
}

TEST(CaseN3, AHostWithoutAFreePortIsATypedError) {
  const test::Network network(1);
  network.inside(0, [] {
    write_setting("/proc/sys/net/ipv4/ip_local_port_range", "42000 42019");
    auto server = StoreServer::start(*parse_address("127.0.0.1"));
    ASSERT_TRUE(server);
    const std::vector<Descriptor> held = occupy_ports(20);
    const Join joined = join(fmt::format("tcp://{}/job", text((*server)->address())), 0, 4s);
    EXPECT_EQ(joined.status.code, ErrorCode::unavailable) << joined.status.message;
    EXPECT_THAT(joined.status.message, HasSubstr("address"));
  });
}

// Answers everyone as a web server does, until told to stop.
class WebServer {
 public:
  WebServer() : listener_(std::move(*listen_tcp(*parse_address("127.0.0.1")))), address_(local_address(listener_.get())) {
    thread_ = std::thread([this] { serve(); });
  }
  ~WebServer() {
    stopping_ = true;
    connect_tcp(address_).ok();  // wakes it
    thread_.join();
  }
  const Address& address() const { return address_; }

 private:
  void serve() {
    while (!stopping_) {
      if (!poll_one(listener_.get(), POLLIN, Deadline::after(200ms))) continue;
      const Descriptor client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client || !poll_one(client.get(), POLLIN, Deadline::after(2s))) continue;
      char request[4096];
      [[maybe_unused]] const ssize_t got = ::recv(client.get(), request, sizeof request, 0);
      const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      [[maybe_unused]] const ssize_t sent = ::send(client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }
  Descriptor listener_;
  Address address_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST(CaseN3, AWebServerAtTheRendezvousIsNotOurProtocolBelowFiveSeconds) {
  const WebServer web;
  const auto start = std::chrono::steady_clock::now();
  const Join joined = join(fmt::format("tcp://{}/job", text(web.address())), 0, 60s);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(joined.status.code, ErrorCode::protocol) << joined.status.message;
  EXPECT_THAT(joined.status.message, HasSubstr(text(web.address())));
  EXPECT_THAT(joined.status.message, HasSubstr("HTTP/1.1 400"));
}

}  // namespace
}  // namespace gradsync::cases
