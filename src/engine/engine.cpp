#include "engine/engine.hpp"

namespace gradsync {

Engine::Engine(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

Engine::~Engine() { fail(failure(ErrorCode::closed, "the communicator was destroyed")); }

void Engine::submit(std::unique_ptr<Operation> operation) {
  if (!failed_.ok()) {
    operation->fail(failed_);
    return;
  }
  const Request& request = operation->request();
  if (request.channel == Channel::collective) collectives_.push_back(std::move(operation));
  else pairs_[{request.call.collective, request.schedule->recipe.root}].push_back(std::move(operation));
}

bool Engine::progress() {
  if (!failed_.ok()) return false;
  bool moved = false;
  const auto advance = [&](Queue& queue) {
    Result<bool> advanced = advance_front(queue);
    if (!advanced) fail(advanced.status());
    else moved = moved || *advanced;
    return failed_.ok();
  };
  if (!collectives_.empty() && !advance(collectives_)) return true;
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    if (!advance(it->second)) return true;
    it = it->second.empty() ? pairs_.erase(it) : std::next(it);
  }
  return moved;
}

Result<bool> Engine::advance_front(Queue& queue) {
  Operation& operation = *queue.front();
  if (!operation.started())
    if (Status status = operation.start(pool_); !status.ok()) return status;
  Result<bool> moved = operation.execution().advance(*transport_, counters_);
  if (!moved) return moved;
  if (!operation.execution().finished()) return moved;
  operation.complete();
  ++counters_.operations;
  queue.pop_front();
  return true;
}

bool Engine::attend(TimePoint now) {
  if (!failed_.ok() || idle()) return false;
  bool moved = false;
  Status problem;
  const auto look = [&](Queue& queue) {
    if (queue.empty() || !problem.ok()) return;
    if (queue.front()->started()) {
      Execution& execution = queue.front()->execution();
      Result<bool> staged = execution.stage(*transport_, counters_);
      if (!staged) problem = staged.status();
      else if (moved = moved || *staged; !*staged) problem = execution.check_senders(*transport_);
    }
    for (const auto& operation : queue)
      if (problem.ok() && operation->request().deadline.passed(now)) problem = overdue(*operation, *queue.front());
  };
  look(collectives_);
  for (auto& [pair, queue] : pairs_) look(queue);
  if (!problem.ok()) fail(problem);
  return moved || !problem.ok();
}

Status Engine::overdue(const Operation& operation, const Operation& front) const {
  if (!front.started())
    return failure(ErrorCode::timeout, "{} ({}): deadline passed before it was begun", operation.name(),
                   describe(operation.request().call));
  const Execution& execution = front.execution();
  const int peer = execution.waits_for();
  return peer_failure(ErrorCode::timeout, peer, "{} ({}): deadline passed, waiting for {} ({} of {})",
                      operation.name(), describe(operation.request().call),
                      peer < 0 ? "nobody" : transport_->describe(static_cast<std::uint32_t>(peer)),
                      execution.waits_in_words(), front.name());
}

void Engine::fail(const Status& cause) {
  if (failed_.ok()) failed_ = cause;
  for (auto& operation : collectives_) operation->fail(failed_);
  for (auto& [pair, queue] : pairs_)
    for (auto& operation : queue) operation->fail(failed_);
  collectives_.clear();
  pairs_.clear();
}

std::optional<Deadline> Engine::next_deadline() const {
  std::optional<Deadline> next;
  const auto take = [&](const Queue& queue) {
    for (const auto& operation : queue)
      next = next ? earlier(*next, operation->request().deadline) : operation->request().deadline;
  };
  take(collectives_);
  for (const auto& [pair, queue] : pairs_) take(queue);
  return next;
}

}  // namespace gradsync
