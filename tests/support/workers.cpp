#include "support/workers.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

#include "base/clock.hpp"
#include "base/status.hpp"
#include "comm/store_server.hpp"
#include "support/process.hpp"

namespace gradsync::test {
namespace {

constexpr std::size_t kOutputHalf = 64u << 10;  // kept of the begin and of the end of a worker's output
constexpr std::size_t kReported = 4u << 10;

struct Running {
  Process process;
  WorkerEnd end;
  bool reaped = false;
};

void keep(std::string& output, const char* data, std::size_t bytes) {
  output.append(data, bytes);
  if (output.size() > 3 * kOutputHalf) output.erase(kOutputHalf, output.size() - 2 * kOutputHalf);
}

// What has come; closes the pipe at its end.
void read_output(Running& worker) {
  std::array<char, 16384> part;
  while (worker.process.output) {
    const ssize_t got = ::read(worker.process.output.get(), part.data(), part.size());
    if (got > 0) keep(worker.end.output, part.data(), static_cast<std::size_t>(got));
    else if (got == 0) worker.process.output.reset();
    else if (errno != EINTR) return;
  }
}

std::string ending(const WorkerEnd& end) {
  if (end.overdue) return "was still running and was killed by the test";
  if (end.signal != 0) return fmt::format("was killed by signal {}", end.signal);
  return fmt::format("exited with code {}", end.exit_code);
}

std::vector<std::string> environment_of(const WorkerPlan& plan, std::uint32_t rank, const std::string& rendezvous) {
  std::vector<std::string> all = current_environment();
  std::erase_if(all, [](const std::string& entry) { return entry.starts_with("GRADSYNC_"); });
  all.push_back(fmt::format("GRADSYNC_RANK={}", rank));
  all.push_back(fmt::format("GRADSYNC_SIZE={}", plan.size));
  all.push_back("GRADSYNC_RENDEZVOUS=" + rendezvous);
  if (!plan.options.empty()) all.push_back("GRADSYNC_OPTIONS=" + plan.options);
  if (rank >= plan.environment.size()) return all;
  for (const std::string& entry : plan.environment[rank]) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(all, [&](const std::string& other) { return other.starts_with(name); });
    all.push_back(entry);
  }
  return all;
}

std::unique_ptr<StoreServer> serve_store(const std::string& host) {
  const std::optional<Address> address = parse_address(host);
  GRADSYNC_CHECK(address);
  Result<std::unique_ptr<StoreServer>> server = StoreServer::start(*address, "test");
  if (!server) throw std::runtime_error("cannot serve the rendezvous: " + server.status().message);
  return *std::move(server);
}

}  // namespace

struct Workers::State {
  std::unique_ptr<StoreServer> store;
  std::string rendezvous;
  std::vector<Running> workers;
  Deadline deadline;
  std::chrono::milliseconds grace;
  int first_failed = -1;

  explicit State(const WorkerPlan& plan) : deadline(Deadline::after(plan.deadline)), grace(plan.grace) {}
  ~State();
  void serve(const WorkerPlan& plan);
  void start(const WorkerPlan& plan, std::uint32_t rank);
  void reap(std::uint32_t rank);
  void turn(Deadline until);
  void kill_the_rest();
  bool all_ended() const {
    return std::all_of(workers.begin(), workers.end(), [](const Running& w) { return w.reaped; });
  }
};

Workers::State::~State() { kill_the_rest(); }

void Workers::State::serve(const WorkerPlan& plan) {
  if (!plan.rendezvous.empty()) {
    rendezvous = plan.rendezvous;
    return;
  }
  if (plan.network)
    plan.network->inside(plan.hosts.at(0), [&] { store = serve_store(plan.network->address(plan.hosts[0])); });
  else store = serve_store("127.0.0.1");
  rendezvous = fmt::format("tcp://{}/test", text(store->address()));
}

void Workers::State::start(const WorkerPlan& plan, std::uint32_t rank) {
  std::vector<std::string> command = {plan.program};
  command.insert(command.end(), plan.arguments.begin(), plan.arguments.end());
  const int network = plan.network ? plan.network->descriptor(plan.hosts.at(rank)) : -1;
  workers.push_back({start_process({std::move(command), environment_of(plan, rank, rendezvous), network}), {}, false});
}

void Workers::State::reap(std::uint32_t rank) {
  Running& worker = workers[rank];
  siginfo_t ended{};
  if (worker.reaped) return;
  if (::waitid(P_PID, static_cast<id_t>(worker.process.pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid == 0)
    return;
  ::kill(-worker.process.pid, SIGKILL);  // what it started; before it is reaped, so that the number is still its own
  int status = 0;
  ::waitpid(worker.process.pid, &status, 0);
  worker.reaped = true;
  worker.end.ended = !worker.end.overdue;
  if (WIFEXITED(status)) worker.end.exit_code = WEXITSTATUS(status);
  else worker.end.signal = WTERMSIG(status);
  read_output(worker);
  worker.process.output.reset();  // what left the group may still hold the other end
  if (status == 0 || first_failed >= 0) return;
  first_failed = static_cast<int>(rank);
  deadline = earlier(deadline, Deadline::after(grace));
}

// Waits until something has happened, takes it in.
void Workers::State::turn(Deadline until) {
  std::vector<pollfd> watched;
  for (const Running& worker : workers) {
    if (worker.reaped) continue;
    watched.push_back({worker.process.ended.get(), POLLIN, 0});
    if (worker.process.output) watched.push_back({worker.process.output.get(), POLLIN, 0});
  }
  ::poll(watched.data(), watched.size(), until.poll_milliseconds());
  for (Running& worker : workers) read_output(worker);
  for (std::uint32_t rank = 0; rank < workers.size(); ++rank) reap(rank);
}

void Workers::State::kill_the_rest() {
  for (Running& worker : workers) {
    if (worker.reaped) continue;
    worker.end.overdue = true;
    ::kill(-worker.process.pid, SIGKILL);
  }
  const Deadline end = Deadline::after(std::chrono::seconds(20));
  while (!all_ended() && !end.passed()) turn(end);
}

std::string this_program() {
  std::array<char, 4096> path;
  const ssize_t bytes = ::readlink("/proc/self/exe", path.data(), path.size());
  GRADSYNC_CHECK(bytes > 0);
  return {path.data(), static_cast<std::size_t>(bytes)};
}

std::string Outcome::report() const {
  if (ok()) return "every worker exited with code 0";
  std::string all = fmt::format("rank {} failed first\n", first_failed);
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    const WorkerEnd& end = workers[rank];
    if (end.ended && end.exit_code == 0) continue;
    const std::size_t skipped = end.output.size() - std::min(end.output.size(), kReported);
    all += fmt::format("rank {} {}; the {} of its output:\n{}\n", rank, ending(end), skipped > 0 ? "end" : "whole",
                       end.output.substr(skipped));
  }
  return all;
}

Workers::Workers(const WorkerPlan& plan) : state_(std::make_unique<State>(plan)) {
  GRADSYNC_CHECK(plan.size > 0 && (!plan.network || plan.hosts.size() == plan.size));
  state_->serve(plan);
  for (std::uint32_t rank = 0; rank < plan.size; ++rank) state_->start(plan, rank);
}
Workers::~Workers() = default;

int Workers::pid(std::uint32_t rank) const { return state_->workers.at(rank).process.pid; }
const std::string& Workers::rendezvous() const { return state_->rendezvous; }

bool Workers::send_signal(std::uint32_t rank, int signal) {
  state_->reap(rank);
  const Running& worker = state_->workers.at(rank);
  return !worker.reaped && ::kill(worker.process.pid, signal) == 0;
}

bool Workers::wait_for_output(std::uint32_t rank, const std::string& text, std::chrono::milliseconds within) {
  const Deadline until = earlier(state_->deadline, Deadline::after(within));
  const Running& worker = state_->workers.at(rank);
  while (worker.end.output.find(text) == std::string::npos) {
    if (worker.reaped || until.passed()) return false;
    state_->turn(until);
  }
  return true;
}

Outcome Workers::wait() {
  while (!state_->all_ended() && !state_->deadline.passed()) state_->turn(state_->deadline);
  state_->kill_the_rest();
  Outcome outcome{{}, state_->first_failed};
  for (Running& worker : state_->workers) outcome.workers.push_back(worker.end);
  return outcome;
}

Outcome run_workers(const WorkerPlan& plan) { return Workers(plan).wait(); }

}  // namespace gradsync::test
