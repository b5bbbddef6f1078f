// N1, N3: start-up where names, ports and neighbours are not what one would wish.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "comm/sockets.hpp"
#include "comm/store_server.hpp"
#include "support/network.hpp"
#include "support/workers.hpp"
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

// Two ranks on two hosts that meet at a store on the first, found by its name: there 127.0.1.1, elsewhere its address. Processes,
// as each needs a view of its own of the host's name and of /etc/hosts (which vanish with it).
test::Outcome join_by_name(const test::Network& network, const std::string& start_timeout) {
  std::unique_ptr<StoreServer> server;
  network.inside(0, [&] {
    auto started = StoreServer::start(*parse_address("0.0.0.0"));
    throw_if_failed(started.status());
    server = *std::move(started);
  });
  const std::string script =
      "mount -t tmpfs cases /mnt && printf '127.0.0.1 localhost\n%s alpha\n' $CASE_ADDRESS > /mnt/hosts && "
      "mount --bind /mnt/hosts /etc/hosts && echo $CASE_NAME > /proc/sys/kernel/hostname && exec \"$@\"";
  test::WorkerPlan plan;
  plan.program = "unshare";
  plan.arguments = {"-m", "-u", "sh", "-c", script, "sh", test::this_program(), "worker"};
  plan.size = 2;
  plan.options = "timeout=10,start_timeout=" + start_timeout;
  plan.network = &network;
  plan.hosts = {0, 1};
  plan.rendezvous = fmt::format("tcp://alpha:{}/job", server->address().port);
  plan.environment = {{"CASE_NAME=alpha", "CASE_ADDRESS=127.0.1.1"},
                      {"CASE_NAME=beta", "CASE_ADDRESS=" + network.address(0)}};
  return test::run_workers(plan);
}

TEST(CaseN1, AHostNameThatMeansLoopbackAtHomeLeadsToARoutableAddress) {
  const test::Network network(2);
  const test::Outcome outcome = join_by_name(network, "15");
  ASSERT_TRUE(outcome.ok()) << outcome.report();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(outcome.workers[rank].output, HasSubstr(rank == 0 ? "host alpha, " : "host beta, "));
    EXPECT_THAT(outcome.workers[rank].output, HasSubstr(network.address(rank)));
    EXPECT_THAT(outcome.workers[rank].output, HasSubstr("right, on host number " + std::to_string(rank)));
  }
}

TEST(CaseN1, WithoutARouteTheErrorListsWhatWasTried) {
  const test::Network network(2);
  network.command(1, {"ip", "link", "set", "eth0", "down"});
  const test::Outcome outcome = join_by_name(network, "4");
  for (const test::WorkerEnd& end : outcome.workers) EXPECT_EQ(end.exit_code, 3) << end.output;
  const std::string &home = outcome.workers[0].output, &away = outcome.workers[1].output;
  EXPECT_THAT(away, AnyOf(HasSubstr("unavailable: "), HasSubstr("timeout: ")));
  EXPECT_THAT(away, HasSubstr(network.address(0)));
  EXPECT_THAT(away, HasSubstr("eth0")) << "the interfaces that there are";
  EXPECT_THAT(home, HasSubstr("timeout: "));
  EXPECT_THAT(home, HasSubstr("rank 1"));
}

// N3 ---------------------------------------------------------------------------------------------------------------

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
  } catch (const Error& error) { joined.status = error.status(); }
  return joined;
}

TEST(CaseN3, FiftyJobsAtOnceOnAHost) {
  std::vector<std::thread> jobs;
  for (int job = 0; job < 50; ++job)
    jobs.emplace_back([job] {
      in_world({.size = 2, .medium = job % 2 == 0 ? Medium::shm : Medium::tcp, .timeout = 30s, .start_timeout = 30s},
               expect_sums);
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
  WebServer()
      : listener_(std::move(*listen_tcp(*parse_address("127.0.0.1")))),
        address_(local_address(listener_.get())) {
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
