#include "comm/work.hpp"

namespace gradsync {
namespace {

// The engine ends every operation at its deadline; this much later the engine itself is at fault.
constexpr auto kGuard = std::chrono::seconds(10);

}  // namespace

void wait_until(const Work::State& state, TimePoint until) {
  state.group->wait(*state.completion, until);
  if (!state.group->served()) return;
  if (const std::shared_ptr<Site> site = state.site.lock()) site->progress().poke();
}

Status finish(const Work::State& state) {
  wait_until(state, later(state.deadline, kGuard));
  if (state.completion->done()) return state.completion->status();
  // The caller will take its memory back: nothing may touch it any more.
  state.group->abort(
      failure(ErrorCode::internal, "operation #{} has neither ended nor failed by its deadline", state.sequence));
  state.group->close();
  return state.group->status();
}

bool Work::done() const { return !state_ || state_->completion->done(); }

void Work::wait() {
  if (state_) throw_if_failed(finish(*state_));
}

Status Work::status() const {
  if (!state_ || !state_->completion->done()) return {};
  return state_->completion->status();
}

bool Work::wait_for(std::chrono::nanoseconds duration) {
  if (!state_) return true;
  wait_until(*state_, later(std::chrono::steady_clock::now(), duration));
  return state_->completion->done();
}

std::chrono::steady_clock::time_point Work::completed_at() const {
  if (!state_ || !state_->completion->done()) return {};
  return state_->completion->when();
}

int Work::source() const { return done() && state_ ? state_->completion->source() : -1; }

std::uint64_t Work::sequence() const { return state_ ? state_->sequence : 0; }

}  // namespace gradsync
