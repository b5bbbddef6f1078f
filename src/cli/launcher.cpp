#include "cli/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/descriptor.hpp"
#include "base/limits.hpp"
#include "cli/descendants.hpp"
#include "cli/output.hpp"
#include "cli/signals.hpp"
#include "cli/spawn.hpp"

namespace gradsync::cli {
namespace {

constexpr std::size_t read_bytes = 64u << 10;
constexpr auto output_grace = std::chrono::seconds(5);         // for a slow reader, after a failure
constexpr auto reap_interval = std::chrono::minutes(1);        // of orphans that this process adopted
constexpr auto kill_interval = std::chrono::milliseconds(50);  // until the kernel has ended them
constexpr std::size_t streams_per_worker = 2;

struct Stream {
  Descriptor pipe;
  int target;
  LineBuffer lines;
};

struct Running {
  std::uint32_t rank;
  pid_t pid;
  Descriptor process;
  bool ended = false;
  bool well = false;  // with code 0
};

enum class Source : std::uint32_t { worker, stray, signals, lifeline, pipes, output };

std::uint64_t tag(Source source, std::size_t index) {
  return static_cast<std::uint64_t>(source) << 32 | static_cast<std::uint32_t>(index);
}

bool watch(const Descriptor& set, int descriptor, std::uint32_t events, std::uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return ::epoll_ctl(set.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}
void unwatch(const Descriptor& set, int descriptor) { ::epoll_ctl(set.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

// The soft limit of descriptors, raised to the hard one while this lives.
class MoreDescriptors {
 public:
  MoreDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit more = before_;
    more.rlim_cur = more.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &more);
  }
  ~MoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  MoreDescriptors(const MoreDescriptors&) = delete;
  MoreDescriptors& operator=(const MoreDescriptors&) = delete;
  unsigned long before() const { return before_.rlim_cur; }
  unsigned long now() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

class Launcher {
 public:
  explicit Launcher(const Launch& launch) : launch_(launch), others_(children()), blocked_(launch.handle_signals) {}
  ~Launcher() { end_descendants(others_, Deadline::after(limits::launcher_kill_grace)); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  Outcome run();

 private:
  Status prepare();
  Status start_all();
  Status start(const Program& base, std::uint32_t index);

  void turn();
  Deadline next_deadline() const;
  void dispatch(Source source, std::size_t index);
  void read_pipes();
  bool read_stream(Stream& stream);
  void close_stream(Stream& stream);
  void write_output();
  void on_signals();
  void on_deadlines();

  void note_endings();
  void read_rest(std::size_t worker);
  void fail(int exit_code, std::string message, int rank = -1, int signal_number = SIGTERM);
  void begin_ending(int signal_number);
  void kill_everything();
  void signal_groups(int signal_number);
  bool sweep();
  void drain();
  void reap_adopted();
  void tell(const std::string& message);
  std::string ranks_text(bool (*wanted)(const Running&)) const;
  std::string others_text() const;

  const Launch& launch_;
  const std::set<pid_t> others_;  // children that are not ours
  Subreaper subreaper_;
  MoreDescriptors descriptors_;
  BlockedSignals blocked_;
  Descriptor events_, pipes_, signals_;
  std::vector<Running> workers_;
  std::vector<Stream> streams_;
  std::vector<Descriptor> strays_;
  std::set<pid_t> asked_;  // strays that got a SIGTERM
  OutputQueue output_;
  Outcome outcome_;
  std::size_t running_ = 0;
  int output_armed_ = -1;
  bool pipes_watched_ = false;
  bool failed_ = false, abandoned_ = false, warned_ = false;
  bool rescan_ = false;  // a process ended between being seen and being watched
  bool draining_ = false;
  std::optional<Deadline> timeout_at_, kill_at_, output_at_;
  Deadline reap_at_ = Deadline::after(reap_interval);
  std::array<char, read_bytes> chunk_;
};

Status system_failure(const char* what) { return failure(ErrorCode::unavailable, "{}: {}", what, errno_text(errno)); }

Status Launcher::prepare() {
  const std::uint64_t needed = std::uint64_t{launch_.workers} * 3 + 64;
  if (needed > descriptors_.now())
    return failure(ErrorCode::unavailable, "{} workers need {} open files, the limit is {} (ulimit -n)",
                   launch_.workers, needed, descriptors_.now());
  events_.reset(::epoll_create1(EPOLL_CLOEXEC));
  pipes_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!events_ || !pipes_) return system_failure("epoll_create1");
  if (launch_.handle_signals) {
    const sigset_t wanted = launcher_signals();
    signals_.reset(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_ || !watch(events_, signals_.get(), EPOLLIN, tag(Source::signals, 0)))
      return system_failure("signalfd");
  }
  if (launch_.lifeline >= 0 && !watch(events_, launch_.lifeline, EPOLLIN, tag(Source::lifeline, 0)))
    return system_failure("epoll_ctl");
  if (launch_.timeout) timeout_at_ = Deadline::after(*launch_.timeout);
  return {};
}

Status Launcher::start(const Program& base, std::uint32_t index) {
  Program program = base;
  const std::uint32_t rank = launch_.first_rank + index;
  program.environment.push_back("GRADSYNC_RANK=" + std::to_string(rank));
  auto worker = spawn(program);
  if (!worker) return worker.status();
  const std::string prefix = launch_.prefix ? fmt::format("[{}] ", rank) : std::string();
  if (!watch(events_, worker->process.get(), EPOLLIN, tag(Source::worker, workers_.size())))
    return system_failure("epoll_ctl");
  workers_.push_back({rank, worker->pid, std::move(worker->process)});
  ++running_;
  for (auto* pipe : {&worker->out, &worker->err}) {
    if (!watch(pipes_, pipe->get(), EPOLLIN, streams_.size())) return system_failure("epoll_ctl");
    streams_.push_back({std::move(*pipe), pipe == &worker->out ? launch_.out : launch_.err, LineBuffer(prefix)});
  }
  return {};
}

Status Launcher::start_all() {
  const char* path = std::getenv("PATH");
  auto file = find_program(launch_.command.at(0), path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin");
  if (!file) return file.status();
  Program program{*file, launch_.command, launch_.environment, descriptors_.before()};
  program.environment.push_back("GRADSYNC_SIZE=" + std::to_string(launch_.size));
  program.environment.push_back("GRADSYNC_RENDEZVOUS=" + launch_.rendezvous);
  workers_.reserve(launch_.workers);
  streams_.reserve(std::size_t{launch_.workers} * streams_per_worker);
  for (std::uint32_t i = 0; i < launch_.workers && !failed_; ++i) {
    Status status = start(program, i);
    if (!status.ok()) return status;
    note_endings();  // a worker may fail before the last one is started
  }
  return {};
}

Outcome Launcher::run() {
  Status status = prepare();
  if (status.ok()) status = start_all();
  if (!status.ok()) {
    const int code = status.code == ErrorCode::out_of_range  ? exit_not_found
                     : status.code == ErrorCode::unsupported ? exit_not_executable
                                                             : exit_launcher;
    fail(code, status.message);
  }
  while (!abandoned_ && (running_ > 0 || !sweep())) turn();
  if (!abandoned_) drain();
  if (abandoned_) {
    kill_everything();
    end_descendants(others_, Deadline::after(limits::launcher_kill_grace));
  }
  return outcome_;
}

// One wait, and all that it reports.
void Launcher::turn() {
  write_output();
  const bool want_pipes = !output_.full() && !draining_;
  if (want_pipes != pipes_watched_) {
    if (want_pipes) watch(events_, pipes_.get(), EPOLLIN, tag(Source::pipes, 0));
    else unwatch(events_, pipes_.get());
    pipes_watched_ = want_pipes;
  }
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), ready.size(), next_deadline().poll_milliseconds());
  rescan_ = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t data = ready[static_cast<std::size_t>(i)].data.u64;
    dispatch(static_cast<Source>(data >> 32), static_cast<std::size_t>(data & 0xffffffffu));
  }
  on_deadlines();
}

Deadline Launcher::next_deadline() const {
  Deadline next = rescan_ ? Deadline::after(Nanoseconds{0}) : reap_at_;
  for (const auto& at : {timeout_at_, kill_at_, output_at_})
    if (at && *at < next) next = *at;
  return next;
}

void Launcher::dispatch(Source source, std::size_t index) {
  switch (source) {
    case Source::worker: note_endings(); break;
    case Source::stray: unwatch(events_, strays_[index].get()); break;  // the next sweep looks what is left
    case Source::signals: on_signals(); break;
    case Source::lifeline: abandoned_ = true; break;
    case Source::pipes: read_pipes(); break;
    case Source::output: write_output(); break;
  }
}

void Launcher::read_pipes() {
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(pipes_.get(), ready.data(), ready.size(), 0);
  for (int i = 0; i < count && !output_.full(); ++i)
    read_stream(streams_[static_cast<std::size_t>(ready[static_cast<std::size_t>(i)].data.u64)]);
}

// Reads once; false if nothing was there.
bool Launcher::read_stream(Stream& stream) {
  const ssize_t got = ::read(stream.pipe.get(), chunk_.data(), chunk_.size());
  if (got < 0) return false;
  if (got == 0) return close_stream(stream), false;
  std::string text;
  stream.lines.add({chunk_.data(), static_cast<std::size_t>(got)}, text);
  output_.add(stream.target, std::move(text));
  return true;
}

void Launcher::close_stream(Stream& stream) {
  std::string text;
  stream.lines.finish(text);
  output_.add(stream.target, std::move(text));
  unwatch(pipes_, stream.pipe.get());
  stream.pipe.reset();
}

void Launcher::write_output() {
  if (output_armed_ >= 0) unwatch(events_, output_armed_);
  output_armed_ = output_.flush();
  if (output_armed_ >= 0) watch(events_, output_armed_, EPOLLOUT, tag(Source::output, 0));
  // Like a program of a pipeline whose reader went away, without a message.
  if (output_.error() != 0 && !failed_) {
    failed_ = true;
    outcome_ = {exit_signal + SIGPIPE, "cannot write output: " + errno_text(output_.error())};
    begin_ending(SIGTERM);
  }
}

void Launcher::on_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1 || number == SIGUSR2) {
      for (const Running& worker : workers_)
        if (!worker.ended) ::kill(worker.pid, number);
    } else if (warned_) {
      kill_everything();
      output_at_ = Deadline::after(Nanoseconds{0});
    } else {
      warned_ = true;
      if (failed_) continue;
      fail(exit_signal + number, fmt::format("interrupted by signal {} ({})", number, signal_text(number)), -1, number);
    }
  }
}

void Launcher::on_deadlines() {
  if (timeout_at_ && timeout_at_->passed()) {
    timeout_at_.reset();
    if (!failed_ && running_ > 0)
      fail(exit_timeout, fmt::format("timed out after {:g} s; still running: {}",
                                     std::chrono::duration<double>(*launch_.timeout).count(), others_text()));
  }
  if (kill_at_ && kill_at_->passed()) kill_everything();
  if (reap_at_.passed()) reap_adopted();
}

// "rank 0, 2, 5 and 61 more"; empty if there is none.
std::string Launcher::ranks_text(bool (*wanted)(const Running&)) const {
  constexpr std::size_t named_max = 8;
  std::string text;
  std::size_t count = 0;
  for (const Running& worker : workers_)
    if (wanted(worker) && count++ < named_max) text += fmt::format("{}{}", count == 1 ? "rank " : ", ", worker.rank);
  if (count > named_max) text += fmt::format(" and {} more", count - named_max);
  return text;
}

std::string Launcher::others_text() const {
  return ranks_text([](const Running& worker) { return !worker.ended; });
}

// Looks at all workers that have ended since the last look. If several failed meanwhile, one that was killed is taken for
// the first: a survivor reports a lost peer by an exit code, seldom by a signal.
void Launcher::note_endings() {
  const Running* first = nullptr;
  int first_status = 0;
  for (Running& worker : workers_) {
    siginfo_t info{};
    if (worker.ended || ::waitid(P_PID, static_cast<id_t>(worker.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    worker.ended = true;  // reaped at the very end, so that its process group's number stays taken
    --running_;
    unwatch(events_, worker.process.get());
    worker.process.reset();
    const int status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status;
    worker.well = status == 0;
    if (status != 0 && (first == nullptr || (WIFSIGNALED(status) && WIFEXITED(first_status)))) {
      first = &worker;
      first_status = status;
    }
  }
  if (first == nullptr || failed_) return;
  read_rest(static_cast<std::size_t>(first - workers_.data()));
  std::string message = fmt::format("rank {} (pid {}) {}", first->rank, first->pid, describe_ending(first_status));
  // A rank that left the others in the middle of the job may be why this one failed.
  const std::string left = ranks_text([](const Running& worker) { return worker.well; });
  if (!left.empty()) message += fmt::format(" ({} had exited with code 0 before)", left);
  if (running_ > 0) message += fmt::format("; ending the others ({})", others_text());
  fail(exit_code_of(first_status), std::move(message), static_cast<int>(first->rank));
}

// What a worker wrote before it ended comes before the message about its end.
void Launcher::read_rest(std::size_t worker) {
  for (std::size_t i = worker * streams_per_worker; i < (worker + 1) * streams_per_worker && i < streams_.size(); ++i)
    while (!output_.full() && streams_[i].pipe && read_stream(streams_[i])) {}
}

void Launcher::fail(int exit_code, std::string message, int rank, int signal_number) {
  failed_ = true;
  outcome_ = {exit_code, std::move(message), rank};
  tell(outcome_.message);
  begin_ending(signal_number);
}

void Launcher::tell(const std::string& message) {
  output_.add(launch_.err, fmt::format("{}: {}\n", launch_.name, message));
}

void Launcher::begin_ending(int signal_number) {
  signal_groups(signal_number);
  if (!kill_at_) kill_at_ = Deadline::after(limits::launcher_kill_grace);
  if (!output_at_) output_at_ = Deadline::after(limits::launcher_kill_grace + output_grace);
}

void Launcher::signal_groups(int signal_number) {
  for (const Running& worker : workers_) ::kill(-worker.pid, signal_number);
}

void Launcher::kill_everything() {
  signal_groups(SIGKILL);
  for (const pid_t pid : living_descendants(others_)) ::kill(pid, SIGKILL);
  kill_at_ = Deadline::after(kill_interval);
}

// After the last worker: whether nothing that it left behind lives. What does is asked to end, then made to.
bool Launcher::sweep() {
  const std::vector<pid_t> living = living_descendants(others_);
  if (living.empty()) return true;
  for (const Descriptor& stray : strays_) unwatch(events_, stray.get());
  strays_.clear();
  for (const pid_t pid : living) {
    if (asked_.insert(pid).second) ::kill(pid, SIGTERM);
    Descriptor process(open_process(pid));
    rescan_ = rescan_ || !process;
    if (!process || strays_.size() == limits::launch_ranks_max) continue;
    watch(events_, process.get(), EPOLLIN, tag(Source::stray, strays_.size()));
    strays_.push_back(std::move(process));
  }
  if (!kill_at_) kill_at_ = Deadline::after(limits::launcher_kill_grace);
  return false;
}

// Nobody writes any more: what is left in the pipes, then their unfinished last lines.
void Launcher::drain() {
  kill_at_.reset();
  draining_ = true;
  // Writes until no more than `left` bytes wait, or nobody will read them.
  const auto write_down_to = [&](std::size_t left) {
    for (write_output(); output_.bytes() > left && !abandoned_ && !(output_at_ && output_at_->passed()); write_output())
      turn();
  };
  for (Stream& stream : streams_) {
    while (stream.pipe && read_stream(stream))
      if (output_.full()) write_down_to(output_bytes_max / 2);
    if (stream.pipe) close_stream(stream);
  }
  write_down_to(0);
}

void Launcher::reap_adopted() {
  std::set<pid_t> spared = others_;
  for (const Running& worker : workers_) spared.insert(worker.pid);
  for (const pid_t pid : children())
    if (!spared.contains(pid)) ::waitpid(pid, nullptr, WNOHANG);
  reap_at_ = Deadline::after(reap_interval);
}

}  // namespace

std::string describe_ending(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(wait_status), signal_text(WTERMSIG(wait_status)));
  return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? exit_signal + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Outcome run_workers(const Launch& launch) { return Launcher(launch).run(); }

}  // namespace gradsync::cli
