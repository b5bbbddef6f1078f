#include "c10d/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <numeric>

#include "c10d/store.hpp"

namespace gradsync::pytorch {
namespace {

// Works that may have ended unnoticed before somebody looks.
constexpr std::size_t kSweepLeast = 64;

std::unique_ptr<Communicator> join(const Session::Setup& setup) {
  Options options = Options::settings_from_environment();
  options.rank = setup.rank;
  options.size = setup.size;
  options.store = meeting_in(setup.store, setup.place);
  options.agreement = setup.agreement;
  options.timeout = setup.timeout;
  options.start_timeout = setup.start_timeout;
  try {
    return std::make_unique<Communicator>(Communicator::create(options));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::mismatch) throw;
    throw Error(Status{error.code(), error.peer(),
                       fmt::format("{}: every rank is to make its groups in the same order", error.what())});
  }
}

}  // namespace

Session::Session(Setup setup)
    : setup_(std::move(setup)),
      owner_(::getpid()),
      timeout_(setup_.timeout),
      comm_(join(setup_)),
      side_tasks_(std::make_unique<TaskThread>()),
      completion_threads_(std::make_unique<CompletionThreads>()),
      sweep_at_(kSweepLeast) {}

Session::~Session() {
  if (::getpid() == owner_) {
    shutdown();
    return;
  }
  static_cast<void>(comm_.release());
  static_cast<void>(side_comm_.release());
  static_cast<void>(side_tasks_.release());
  static_cast<void>(completion_threads_.release());
}

void Session::check_process() const {
  if (::getpid() == owner_) return;
  throw Error(Status{ErrorCode::closed, -1,
                     fmt::format("{}: the process group belongs to process {}, this is its forked child {}: call "
                                 "init_process_group here",
                                 prefix(), owner_, ::getpid())});
}

Communicator& Session::comm() {
  check_process();
  if (ended_) throw Error(Status{ErrorCode::closed, -1, prefix() + ": the process group was destroyed"});
  return *comm_;
}

TaskThread& Session::side_tasks() {
  check_process();
  return *side_tasks_;
}

Communicator& Session::side_comm() {
  const std::lock_guard lock(mutex_);
  if (!side_comm_) {
    std::vector<int> everyone(static_cast<std::size_t>(setup_.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    side_comm_ = std::make_unique<Communicator>(comm_->group(everyone));
  }
  return *side_comm_;
}

c10::intrusive_ptr<::c10d::Work> Session::keep(GroupWork::Plan plan) {
  auto work = c10::make_intrusive<GroupWork>(shared_from_this(), std::move(plan));
  bool many = false;
  {
    const std::lock_guard lock(mutex_);
    works_.emplace(work.get(), work);
    many = works_.size() > sweep_at_;
  }
  if (many) sweep();
  return work;
}

c10::intrusive_ptr<GroupWork> Session::forget(const GroupWork* work) {
  const std::lock_guard lock(mutex_);
  const auto at = works_.find(work);
  if (at == works_.end()) return {};
  c10::intrusive_ptr<GroupWork> kept = std::move(at->second);
  works_.erase(at);
  return kept;
}

std::vector<c10::intrusive_ptr<GroupWork>> Session::ended_works() {
  std::vector<c10::intrusive_ptr<GroupWork>> ended;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, work] : works_)
    if (work->ended()) ended.push_back(work);
  sweep_at_ = std::max(kSweepLeast, 2 * (works_.size() - ended.size()));
  return ended;
}

void Session::sweep() {
  for (const auto& work : ended_works()) work->settle();
}

std::string Session::prefix() const { return fmt::format("gradsync rank {} of {}", setup_.rank, setup_.size); }

Status Session::comm_status() {
  check_process();
  return comm_->status();
}

void Session::set_failure_hooks(std::vector<std::function<void()>> hooks) {
  const std::lock_guard lock(mutex_);
  failure_hooks_ = std::move(hooks);
}

void Session::failing() {
  std::vector<std::function<void()>> hooks;
  {
    const std::lock_guard lock(mutex_);
    hooks.swap(failure_hooks_);
  }
  for (const auto& hook : hooks) hook();
}

void Session::note_failure(ErrorCode code) {
  if (code == ErrorCode::mismatch) mismatch_told_ = true;
}

std::string Session::untold_mismatch() {
  if (::getpid() != owner_ || mismatch_told_.exchange(true)) return {};
  const Status status = comm_->status();
  return status.code == ErrorCode::mismatch ? fmt::format("{}: {}", prefix(), status.message) : std::string();
}

void Session::abort(const std::string& why) {
  check_process();
  comm_->abort(why);
  const std::lock_guard lock(mutex_);
  if (side_comm_) side_comm_->abort(why);
}

void Session::shutdown() {
  if (::getpid() != owner_) return;
  ended_ = true;
  comm_->destroy();
  {
    const std::lock_guard lock(mutex_);
    if (side_comm_) side_comm_->destroy();
  }
  side_tasks_->stop();
  sweep();
  completion_threads_->stop();
}

}  // namespace gradsync::pytorch
