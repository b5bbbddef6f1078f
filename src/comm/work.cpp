#include "comm/work.hpp"

namespace gradsync {
namespace {

// The engine ends every operation at its deadline; this much later the engine itself is at fault.
constexpr auto kGuard = std::chrono::seconds(10);

}  // namespace

Status finish(const Work::State& state) {
  state.group->wait(*state.completion, state.deadline + kGuard);
  if (state.completion->done()) return state.completion->status();
  return failure(ErrorCode::internal, "operation #{} has neither ended nor failed by its deadline", state.sequence);
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
  state_->group->wait(*state_->completion, std::chrono::steady_clock::now() + duration);
  return state_->completion->done();
}

std::uint64_t Work::sequence() const { return state_ ? state_->sequence : 0; }

}  // namespace gradsync
