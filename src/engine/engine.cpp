#include "engine/engine.hpp"

namespace gradsync {

Engine::Engine(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {
  if (!transport_->may_have_boards()) board_.state = HostBoard::State::none;
}

Engine::~Engine() { fail(failure(ErrorCode::closed, "the communicator was destroyed")); }

void Engine::submit(std::unique_ptr<Operation> operation) {
  if (!failed_.ok()) {
    operation->fail(failed_);
    return;
  }
  const Request& request = operation->request();
  earliest_ = earliest_ ? earlier(*earliest_, request.deadline) : request.deadline;
  if (request.channel == Channel::collective) {
    collectives_.push_back(std::move(operation));
  } else if (request.call.collective == Collective::send) {
    const std::uint32_t peer = request.schedule->recipe.root;
    sends_[peer].push_back(std::move(operation));
  } else if (Status status = receives_.post(std::move(operation)); !status.ok()) {
    fail(status);
  }
}

bool Engine::progress() {
  if (!failed_.ok()) return false;
  bool moved = false;
  const auto advance = [&](Queue& queue) {
    Result<bool> advanced = advance_front(queue);
    if (!advanced) fail_or_suspect(advanced.status());
    else moved = moved || *advanced;
    return failed_.ok();
  };
  if (!collectives_.empty() && !advance(collectives_)) return true;
  for (auto it = sends_.begin(); it != sends_.end();) {
    if (!advance(it->second)) return true;
    it = it->second.empty() ? sends_.erase(it) : std::next(it);
  }
  if (!receives_.empty() && !advance_receives(moved)) return true;
  if (moved) ++movements_;
  return moved;
}

bool Engine::advance_receives(bool& moved) {
  if (Status problem = receives_.progress(moved); !problem.ok()) fail_or_suspect(problem);
  return failed_.ok();
}

Result<bool> Engine::advance_front(Queue& queue) {
  Operation& operation = *queue.front();
  if (!operation.started())
    if (Status status = operation.start(pool_, &history_, &board_); !status.ok()) return status;
  Counters& counters = operation.request().on_behalf_of ? own_counters_ : counters_;
  const std::uint64_t received = counters.messages_received;
  Result<bool> moved = operation.advance(*transport_, counters);
  if (!moved) return moved;
  if (operation.request().received && counters.messages_received != received)
    operation.request().received(counters.messages_received - received);
  if (!operation.movement().finished()) return moved;
  if (const Request& request = operation.request(); request.channel == Channel::collective) {
    completed_sequence_ = request.sequence;
    rank_ = request.schedule->rank;
    history_.add(request.sequence, request.called());
  }
  operation.complete();
  ++counters.operations;
  queue.pop_front();
  return true;
}

bool Engine::attend(TimePoint now) {
  if (!failed_.ok()) return false;
  bool moved = false;
  Status problem = check_waiters();
  if (problem.ok() && collectives_.empty()) problem = check_leftovers();
  const auto look = [&](Queue& queue) {
    if (queue.empty() || !problem.ok()) return;
    if (queue.front()->started()) {
      Movement& movement = queue.front()->movement();
      Counters& counters = queue.front()->request().on_behalf_of ? own_counters_ : counters_;
      Result<bool> staged = movement.stage(*transport_, counters, now);
      if (!staged) fail_or_suspect(staged.status());
      else if (moved = moved || *staged; !*staged) problem = movement.check_senders(*transport_);
    }
  };
  look(collectives_);
  if (Status gone = receives_.find_everyone_gone(); !gone.ok()) fail_or_suspect(gone);
  if (problem.ok() && earliest_ && earliest_->passed(now)) problem = with_chain(find_overdue(now));
  if (!problem.ok()) fail(problem);
  return moved || !failed_.ok();
}

void Engine::fail_or_suspect(const Status& problem) {
  if (problem.code != ErrorCode::peer_lost) fail(problem);
  else if (suspicion_.ok()) suspicion_ = problem;
}

// The one that is under way; nullptr if none is.
const Movement* Engine::front_collective() const {
  const bool any = failed_.ok() && !collectives_.empty() && collectives_.front()->started();
  return any ? &collectives_.front()->movement() : nullptr;
}

bool Engine::waits_for_bulk() const {
  const Movement* const movement = front_collective();
  return movement != nullptr && sends_.empty() && receives_.empty() && movement->waits_for_bulk(*transport_);
}

void Engine::await() const {
  if (const Movement* const movement = front_collective()) movement->await(*transport_);
}

std::optional<Engine::Waiting> Engine::waiting() const {
  const Movement* const movement = front_collective();
  const int peer = movement != nullptr ? movement->waits_for() : -1;
  if (peer < 0) return std::nullopt;
  const Setup& setup = movement->setup();
  return Waiting{static_cast<std::uint32_t>(peer), {setup.epoch, setup.sequence, 0, setup.call}};
}

void Engine::hear_waiting(std::uint32_t from, const FrameHeader& header) {
  waiters_[from] = header;
  if (Status problem = check_waiters(); !problem.ok()) fail(problem);
}

// Those that wait in a call of ours, past or present, which was another one here.
Status Engine::check_waiters() const {
  for (const auto& [from, header] : waiters_) {
    const Call* mine = history_.find(header.sequence);
    std::uint32_t me = rank_;
    if (!collectives_.empty() && collectives_.front()->request().sequence == header.sequence) {
      mine = &collectives_.front()->request().called();
      me = collectives_.front()->request().schedule->rank;
    }
    if (mine && !same_call(*mine, header.call))
      return mismatch({from, header.sequence, header.call}, {me, header.sequence, *mine});
  }
  return {};
}

// Messages of collectives that have ended here: their senders called something else.
Status Engine::check_leftovers() {
  if (completed_sequence_ == 0) return {};
  std::vector<std::uint32_t> senders;
  transport_->append_senders(Channel::collective, senders);
  for (std::uint32_t from : senders) {
    Result<std::span<const std::byte>> shown =
        transport_->peek({from, Channel::collective}, limits::frame_header_bytes);
    if (!shown || shown->size() < limits::frame_header_bytes) continue;
    Result<FrameHeader> header = decode_frame(shown->first(limits::frame_header_bytes));
    if (!header || header->sequence > completed_sequence_) continue;
    if (const Call* mine = history_.find(header->sequence))
      return mismatch({from, header->sequence, header->call}, {rank_, header->sequence, *mine});
  }
  return {};
}

Status Engine::overdue(const Operation& operation, const Operation& front) const {
  if (!front.started())
    return failure(ErrorCode::timeout, "{} ({}): deadline passed before it was begun", operation.name(),
                   describe(operation.request().called()));
  const Movement& movement = front.movement();
  const int peer = movement.waits_for();
  return peer_failure(ErrorCode::timeout, peer, "{} ({}): deadline passed, waiting for {} ({} of {})", operation.name(),
                      describe(operation.request().called()),
                      peer < 0 ? "nobody" : transport_->name(static_cast<std::uint32_t>(peer)),
                      movement.waits_in_words(), front.name());
}

std::vector<std::uint32_t> Engine::chain_of(std::uint64_t sequence, std::uint32_t peer) const {
  const bool heard = chain_.sequence == sequence && !chain_.ranks.empty() && chain_.ranks.front() == peer;
  return heard ? chain_.ranks : std::vector<std::uint32_t>{peer};
}

// Blames the last of those that wait for one another.
Status Engine::with_chain(Status late) const {
  const std::optional<Waiting> mine = late.ok() ? std::nullopt : waiting();
  if (!mine || late.peer != static_cast<int>(mine->peer)) return late;
  const std::vector<std::uint32_t> chain = chain_of(mine->header.sequence, mine->peer);
  if (chain.size() < 2) return late;
  late.message += fmt::format("; rank {} waits", chain.front());
  for (std::size_t i = 1; i < chain.size(); ++i)
    late.message += fmt::format("{} for {}", i == 1 ? "" : ", which waits", transport_->name(chain[i]));
  late.message += ", of which nothing is heard";
  late.peer = static_cast<int>(chain.back());
  return late;
}

void Engine::fail(const Status& cause) {
  if (failed_.ok()) failed_ = cause;
  transport_->withdraw();  // whoever hears of the failure takes back the memory
  if (!collectives_.empty() && collectives_.front()->started()) collectives_.front()->movement().withdraw(*transport_);
  for (auto& operation : collectives_) operation->fail(failed_);
  for (auto& [peer, queue] : sends_)
    for (auto& operation : queue) operation->fail(failed_);
  receives_.fail(failed_);
  collectives_.clear();
  sends_.clear();
}

// Also looks up the earliest deadline of what is still live.
Status Engine::find_overdue(TimePoint now) {
  earliest_.reset();
  const auto search = [&](const Queue& queue) -> Status {
    for (const auto& operation : queue) {
      const Deadline deadline = operation->request().deadline;
      if (deadline.passed(now)) return overdue(*operation, *queue.front());
      earliest_ = earliest_ ? earlier(*earliest_, deadline) : deadline;
    }
    return {};
  };
  if (Status status = search(collectives_); !status.ok()) return status;
  for (const auto& [peer, queue] : sends_)
    if (Status status = search(queue); !status.ok()) return status;
  return receives_.find_overdue(now, earliest_);
}

bool Engine::arm() {
  const bool joined = board_.state == HostBoard::State::joined;
  if (joined) board_.own().header().asleep.store(1, std::memory_order_seq_cst);
  const bool quiet = transport_->arm();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!quiet || !joined) return quiet;
  // Somebody who rang before the transport could hear it leaves only this sign, and would not be followed by another.
  if (board_.own().header().asleep.load(std::memory_order_seq_cst) == 0) return false;
  const bool waits = !collectives_.empty() && collectives_.front()->started();
  return !(waits && collectives_.front()->movement().news());
}

void Engine::disarm() {
  if (board_.state == HostBoard::State::joined) board_.own().header().asleep.store(0, std::memory_order_seq_cst);
  transport_->disarm();
}

std::optional<TimePoint> Engine::stages_at() const {
  if (collectives_.empty() || !collectives_.front()->started()) return std::nullopt;
  return collectives_.front()->movement().stages_at();
}

std::optional<Deadline> Engine::next_deadline() const { return idle() ? std::nullopt : earliest_; }

}  // namespace gradsync
