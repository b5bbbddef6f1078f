#include "comm/group.hpp"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gradsync {
namespace {

constexpr auto kNapMax = std::chrono::milliseconds(500);  // a sleeper looks around this often, whatever happens
constexpr std::uint32_t kPassesPerLook = 256;             // busy passes between two looks at the clock
constexpr std::uint32_t kAnyRank = ~std::uint32_t{0};     // receives of any rank have numbers of their own

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

Group::Group(Setup setup)
    : rank_(setup.rank),
      size_(setup.size),
      epoch_(setup.epoch),
      cores_to_spare_(setup.cores_to_spare),
      owner_(::getpid()),
      engine_(std::make_unique<Engine>(std::move(setup.transport))),
      notifier_(std::move(setup.notifier)) {}

Group::~Group() { close(); }

Result<std::uint64_t> Group::submit(Request request, std::shared_ptr<Completion> completion) {
  std::lock_guard lock(mutex_);
  if (failure_.ok() && !request.on_behalf_of && submitted_ - completed_.load() >= limits::operations_in_flight_max)
    return failure(ErrorCode::out_of_range, "{}: {} operations are under way, the limit is {}",
                   name_of(request.call.collective), submitted_ - completed_.load(), limits::operations_in_flight_max);
  const std::uint32_t peer = request.any_source ? kAnyRank : request.schedule->recipe.root;
  request.sequence =
      request.channel == Channel::collective ? ++sequence_ : ++pair_sequences_[{request.call.collective, peer}];
  const std::uint64_t sequence = request.sequence;
  if (!failure_.ok()) {
    completion->finish(failure_);
    return sequence;
  }
  ++submitted_;
  submissions_.push_back(std::make_unique<Operation>(std::move(request), epoch_, std::move(completion)));
  has_submissions_.store(true);
  if (sleeping_.load()) wake_.signal();
  return sequence;
}

void Group::wait(const Completion& completion, TimePoint until) {
  std::unique_lock lock(mutex_);
  while (!completion.done() && std::chrono::steady_clock::now() < until) {
    if (driven_) {
      ++wanting_;
      watchers_.fetch_add(1);
      if (sleeping_.load()) wake_.signal();
      changed_.wait_until(lock, std::min(until, std::chrono::steady_clock::now() + kNapMax),
                          [&] { return completion.done() || !driven_; });
      watchers_.fetch_sub(1);
      --wanting_;
      continue;
    }
    if (closed_) break;  // whoever closed it has ended every operation
    driven_ = true;
    lock.unlock();
    struct Baton {
      Group& group;
      ~Baton() { group.release(); }
    };
    {
      const Baton baton{*this};
      drive(completion, until);
    }
    lock.lock();
  }
}

void Group::drive(const Completion& completion, TimePoint until) {
  Patience patience(cores_to_spare_, long_waits_);
  while (true) {
    const bool moved = pass();
    if (completion.done()) return;
    if (moved) {
      patience.something_moved();
      continue;
    }
    if (patience.fresh() && engine_->waits_for_bulk()) patience.expect_long_wait();
    switch (patience.after_idle_look()) {
      case Patience::Rest::spin: relax(); break;
      case Patience::Rest::yield: ::sched_yield(); break;
      case Patience::Rest::sleep:
        if (std::chrono::steady_clock::now() >= until) return;
        sleep(completion, until);
    }
  }
}

// One turn of the engine, with what other threads have left for it.
bool Group::pass() {
  bool moved = false;
  guarded([&] {
    if (has_submissions_.load(std::memory_order_relaxed)) take_submissions();
    if (interrupted_.exchange(false)) engine_->fail(recorded_failure());
    moved = engine_->progress();
    if (!engine_->suspicion().ok()) suspect_ended_streams();
    if (++passes_ % kPassesPerLook == 0) {
      const TimePoint now = std::chrono::steady_clock::now();
      const std::optional<Deadline> next = engine_->next_deadline();
      if (suspected_ || (next && next->passed(now))) attend(now);
    }
  });
  if (!engine_->failure_cause().ok()) record_failure(engine_->failure_cause(), true);
  if (engine_->completed() != completed_.load(std::memory_order_relaxed)) announce_completions();
  return moved;
}

// Memory may run out anywhere inside: then everything under way ends with that, like after any other failure.
template <class Body>
void Group::guarded(Body&& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    engine_->fail({ErrorCode::out_of_memory, -1, "no memory left for the operations under way"});
  }
}

void Group::announce_completions() {
  completed_.store(engine_->completed());
  {
    std::lock_guard lock(mutex_);  // a watcher is either waiting by now or will see the completion
    last_counters_ = engine_->counters();
  }
  if (watchers_.load() > 0) changed_.notify_all();
}

Status Group::recorded_failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Group::take_submissions() {
  std::vector<std::unique_ptr<Operation>> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(submissions_);
    has_submissions_.store(false);
  }
  for (auto& operation : taken) engine_->submit(std::move(operation));
}

void Group::attend(TimePoint now) {
  guarded([&] {
    take_notices(now);
    engine_->attend(now);
    if (!engine_->suspicion().ok()) suspect_ended_streams();
    say_where_we_wait(now);
    if (suspected_ && now >= suspected_->when) engine_->fail(suspected_->verdict);
  });
  if (!engine_->failure_cause().ok()) record_failure(engine_->failure_cause(), true);
}

void Group::sleep(const Completion& completion, TimePoint until) {
  const TimePoint now = std::chrono::steady_clock::now();
  attend(now);
  if (completion.done()) return;
  std::vector<pollfd> watched;
  if (begin_sleep(watched)) {
    TimePoint wake_at = std::min(until, now + kNapMax);
    if (const std::optional<Deadline> next = background_deadline()) wake_at = std::min(wake_at, next->when());
    ::poll(watched.data(), watched.size(), Deadline::at(wake_at).poll_milliseconds());
    end_sleep(watched[0].revents != 0);
  } else {
    end_sleep(true);
  }
}

bool Group::begin_sleep(std::vector<pollfd>& into) {
  sleeping_.store(true);
  if (has_submissions_.load() || interrupted_.load()) return false;
  engine_->await();
  if (!engine_->arm()) return false;
  into.push_back({wake_.descriptor(), POLLIN, 0});
  into.push_back({engine_->transport().descriptor(), POLLIN, 0});
  if (notifier_) into.push_back({notifier_->descriptor(), POLLIN, 0});
  return true;
}

void Group::end_sleep(bool woken) {
  engine_->disarm();
  sleeping_.store(false);
  if (woken) wake_.drain();
}

bool Group::try_take() {
  std::lock_guard lock(mutex_);
  if (driven_ || wanting_ > 0 || closed_) return false;
  driven_ = true;
  return true;
}

bool Group::closed() {
  std::lock_guard lock(mutex_);
  return closed_;
}

void Group::release() {
  {
    std::unique_lock lock(mutex_);
    last_counters_ = engine_->counters();
    if (closed_) dispose(lock);
    driven_ = false;
  }
  changed_.notify_all();
}

bool Group::background_pass() {
  if (pass()) return true;
  attend(std::chrono::steady_clock::now());
  return false;
}

bool Group::background_idle() { return engine_->idle() && !has_submissions_.load(); }

std::optional<Deadline> Group::background_deadline() {
  std::optional<Deadline> next = engine_->next_deadline();
  if (suspected_) next = next ? earlier(*next, Deadline::at(suspected_->when)) : Deadline::at(suspected_->when);
  if (const auto stages = engine_->stages_at())
    next = next ? earlier(*next, Deadline::at(*stages)) : Deadline::at(*stages);
  if (standstill_.tell_at && next) next = earlier(*next, Deadline::at(*standstill_.tell_at));
  return next;
}

void Group::abort(Status verdict) {
  std::shared_ptr<Notifier> notifier;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok() || closed_) return;
    failure_ = verdict;
    notifier = notifier_;
    interrupted_.store(true);
  }
  wake_.signal();
  if (try_take()) {  // nobody drives: end what is under way here
    pass();
    release();
  }
  if (notifier) notifier->tell(told_by_me(), verdict, Deadline::after(limits::notice_timeout));
}

void Group::close() {
  if (::getpid() != owner_)
    return;  // a forked child: its copy of the lock may be held for ever, and nothing here is its own
  tell_of_leftovers();
  std::unique_lock lock(mutex_);
  if (closed_) return;
  if (failure_.ok()) failure_ = failure(ErrorCode::closed, "the communicator was destroyed");
  interrupted_.store(true);
  wake_.signal();
  const bool free = changed_.wait_for(lock, limits::destroy_timeout, [&] { return !driven_; });
  if (closed_) return;  // by another thread meanwhile
  closed_ = true;
  if (!free) return;  // the driver is inside a call of the system, and disposes of the rest when it comes out
  driven_ = true;
  dispose(lock);
  driven_ = false;
  changed_.notify_all();
}

// A call that has ended here may have been another one elsewhere: a message that nobody took shows it, and the peers are told.
void Group::tell_of_leftovers() {
  if (!try_take()) return;
  if (engine_->idle() && !has_submissions_.load()) attend(std::chrono::steady_clock::now());
  release();
}

// Ends what is under way and gives back streams and descriptors, so that the peers see their streams end. Holding the baton
// of a closed group, and the lock, which is free meanwhile.
void Group::dispose(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  pass();
  const Counters last = engine_->counters();
  engine_.reset();
  lock.lock();
  const std::shared_ptr<Notifier> notifier = std::move(notifier_);
  last_counters_ = last;
}

Status Group::status() {
  if (try_take()) {
    attend(std::chrono::steady_clock::now());
    release();
  }
  std::lock_guard lock(mutex_);
  return failure_;
}

Counters Group::counters() {
  std::lock_guard lock(mutex_);
  return last_counters_;
}

}  // namespace gradsync
