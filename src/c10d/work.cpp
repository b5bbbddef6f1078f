#include "c10d/work.hpp"

#include <fmt/format.h>

#include "c10d/session.hpp"

namespace gradsync::pytorch {

namespace {

using Clock = std::chrono::steady_clock;

// A future holds a list of tensors, or a list of lists where a call has several lists.
c10::IValue value_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  if (outputs.size() == 1) return c10::IValue(outputs.front());
  if (outputs.empty()) return c10::IValue(std::vector<at::Tensor>());
  return c10::IValue(outputs);
}

c10::TypePtr type_of(const std::vector<std::vector<at::Tensor>>& outputs) {
  c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return outputs.size() > 1 ? c10::ListType::create(list) : list;
}

}  // namespace

GroupWork::GroupWork(std::shared_ptr<Session> session, Plan plan)
    : Work(session->rank(), plan.call.type, plan.call.title, plan.shown),
      session_(std::move(session)),
      plan_(std::move(plan)) {
  plan_.shown.clear();
}

c10::intrusive_ptr<GroupWork> GroupWork::self() {
  return c10::intrusive_ptr<GroupWork>::unsafe_reclaim_from_nonowning(this);
}

bool GroupWork::ended() const {
  for (const gradsync::Work& part : plan_.parts)
    if (!part.done()) return false;
  for (const auto& call : plan_.calls)
    if (!call->ended()) return false;
  return !plan_.task || plan_.task->done();
}

void GroupWork::wait_to_end() {
  for (gradsync::Work& part : plan_.parts) {
    try {
      part.wait();
    } catch (const Error&) {  // status() tells
    }
  }
  for (const auto& call : plan_.calls) call->wait_to_end();
  if (plan_.task) plan_.task->wait();
}

bool GroupWork::wait_at_most(std::chrono::nanoseconds duration) {
  const Clock::time_point until = Clock::now() + duration;
  const auto left = [until] { return std::max(std::chrono::nanoseconds(0), until - Clock::now()); };
  for (gradsync::Work& part : plan_.parts)
    if (!part.wait_for(left())) return false;
  for (const auto& call : plan_.calls)
    if (!call->wait_at_most(left())) return false;
  return !plan_.task || plan_.task->wait_for(left());
}

Status GroupWork::status() const {
  for (const gradsync::Work& part : plan_.parts)
    if (Status status = part.status(); !status.ok()) return status;
  for (const auto& call : plan_.calls)
    if (Status status = call->status(); !status.ok()) return status;
  return plan_.task ? plan_.task->status() : Status{};
}

// Its own timeout, or less where another rank's has passed.
std::chrono::duration<double> GroupWork::waited() const {
  std::chrono::nanoseconds waited = plan_.timeout;
  for (const gradsync::Work& part : plan_.parts)
    if (!part.status().ok()) waited = std::min<std::chrono::nanoseconds>(waited, part.completed_at() - plan_.began);
  return waited;
}

std::string GroupWork::text_of(const Status& status) const {
  std::string text = session_->prefix() + ": ";
  if (status.code == ErrorCode::timeout) text += fmt::format("timeout after {:.3g} s: ", waited().count());
  text += status.message;
  if (plan_.outputs.size() == 1 && plan_.outputs.front().size() == 1)
    text += fmt::format(", {} of {}", plan_.call.name, describe(plan_.outputs.front().front()));
  return text;
}

void GroupWork::conclude() {
  for (const auto& call : plan_.calls) call->settle();
  Status status = this->status();
  if (status.ok()) {
    try {
      const AsMemory guard;
      for (const CopyBack& copy : plan_.copies) copy.to.copy_(copy.from);
    } catch (const std::exception& error) { status = {ErrorCode::internal, -1, error.what()}; }
  }
  plan_.copies.clear();
  plan_.used.clear();
  if (status.ok()) return finish();
  failed_ = status.code != ErrorCode::closed;  // destroying the group is no failure
  session_->note_failure(status.code);
  const std::string text = text_of(status);
  finish(std::make_exception_ptr(Error(Status{status.code, status.peer, text})));
}

void GroupWork::settle() {
  std::call_once(concluded_, [this] { conclude(); });
  if (failed_) session_->failing();
  complete_future();
  const c10::intrusive_ptr<GroupWork> last = session_->forget(this);  // may be the last that holds this work
}

void GroupWork::complete_future() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(future_mutex_);
    if (!future_ || future_completed_) return;
    future_completed_ = true;
    future = future_;
  }
  if (const std::exception_ptr failed = Work::exception()) future->setError(failed);
  else future->markCompleted(value_of(plan_.outputs));
}

bool GroupWork::isCompleted() {
  if (!ended()) return false;
  settle();
  return true;
}

// The base declares what follows const, and it may be the first to notice that the work has ended.
bool GroupWork::isSuccess() const {
  if (ended()) const_cast<GroupWork*>(this)->settle();
  return Work::isSuccess();
}

std::exception_ptr GroupWork::exception() const {
  if (ended()) const_cast<GroupWork*>(this)->settle();
  return Work::exception();
}

int GroupWork::sourceRank() const {
  if (plan_.call.type != ::c10d::OpType::RECV && plan_.call.type != ::c10d::OpType::RECVANYSOURCE)
    throw Error(
        Status{ErrorCode::invalid_argument, -1,
               fmt::format("{}: only a receive has a source rank, this is {}", session_->prefix(), plan_.call.name)});
  return plan_.parts.front().source();
}

std::vector<at::Tensor> GroupWork::result() {
  if (!isCompleted())
    throw Error(
        Status{ErrorCode::invalid_argument, -1,
               fmt::format("{}: {} is still under way: wait() for its result", session_->prefix(), plan_.call.name)});
  if (plan_.outputs.size() > 1)
    throw Error(Status{ErrorCode::unsupported, -1,
                       fmt::format("{}: the result of {} is a list of lists: use get_future().value()",
                                   session_->prefix(), plan_.call.name)});
  return plan_.outputs.empty() ? std::vector<at::Tensor>() : plan_.outputs.front();
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  session_->check_process();
  if (timeout <= kNoTimeout) {
    wait_to_end();
  } else if (!wait_at_most(timeout)) {
    throw Error(Status{ErrorCode::timeout, -1,
                       fmt::format("{}: timeout of wait after {} ms, {} is still under way", session_->prefix(),
                                   timeout.count(), plan_.call.name)});
  }
  settle();
  if (const std::exception_ptr failed = Work::exception()) std::rethrow_exception(failed);
  // All collectives before a barrier are complete, also those that nobody waits for.
  if (plan_.call.type == ::c10d::OpType::BARRIER) session_->sweep();
  return true;
}

void GroupWork::abort() { session_->abort(fmt::format("the work of {} was aborted", plan_.call.name)); }

c10::intrusive_ptr<c10::ivalue::Future> GroupWork::getFuture() {
  session_->check_process();
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(type_of(plan_.outputs));
  }
  const c10::intrusive_ptr<c10::ivalue::Future> future = future_;
  if (ended()) {
    settle();
    return future;
  }
  CompletionThreads::Task task{[work = self()] { work->wait_to_end(); }, [work = self()] { work->settle(); }};
  CompletionThreads& threads = session_->completion_threads();
  if (plan_.order == Order::collective ? threads.in_order(std::move(task)) : threads.alone(std::move(task)))
    return future;
  if (plan_.order == Order::point_to_point && !ended())
    throw Error(Status{ErrorCode::out_of_range, -1,
                       fmt::format("{}: more than {} futures of sends and receives", session_->prefix(),
                                   CompletionThreads::kThreadsMax)});
  wait_to_end();  // the group has ended, and with it this work
  settle();
  return future;
}

#if GRADSYNC_TORCH_SINCE(2, 1)
uint64_t GroupWork::getSequencenumber() const { return plan_.parts.empty() ? 0 : plan_.parts.front().sequence(); }
#endif

}  // namespace gradsync::pytorch
