// The part of a communicator that threads share: an engine, the baton that says which thread drives it, and the verdict
// that ended it.
//
// A blocking call takes the baton and drives the engine itself, without a hand-off. Whoever waits while another thread
// drives sleeps until its operation is done or the baton is free. The progress thread drives what nobody waits for, and
// gives the baton up to any thread that wants it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "comm/notifier.hpp"
#include "comm/patience.hpp"
#include "comm/wake.hpp"
#include "engine/engine.hpp"

struct pollfd;

namespace gradsync {

class Group {
 public:
  struct Setup {
    std::uint32_t rank = 0, size = 1;
    std::uint64_t epoch = 0;
    bool cores_to_spare = true;  // no more ranks on this host than cores: waiting may spin
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Notifier> notifier;
  };
  explicit Group(Setup setup);
  ~Group();

  // Queues a request; its sequence number is assigned here and returned. out_of_range, and nothing is queued, while
  // limits::operations_in_flight_max are under way. Any thread.
  Result<std::uint64_t> submit(Request request, std::shared_ptr<Completion> completion);
  // Drives, or waits for whoever drives, until the completion is done or the time has come. Any thread.
  void wait(const Completion& completion, TimePoint until);

  // Ends everything with the verdict and tells the peers. Idempotent; the first verdict stays. Any thread.
  void abort(Status verdict);
  // Ends everything with `closed`, locally, and gives back streams and descriptors. If it shows by now that a call which ended
  // well here was another one on a peer, that is the verdict instead, and the peers are told. Any thread, idempotent.
  void close();

  // Ok, or why this group has failed. Looks for notices first.
  Status status();
  // As of now, or, while a thread drives, as of when it began.
  Counters counters();

  // For the progress thread. `try_take` fails while another thread drives or wants to.
  bool try_take();
  void release();
  bool closed();
  bool background_pass();  // holding the baton: true if anything moved
  bool background_idle();  // holding the baton: nothing is under way
  // Holding the baton. False if there is something to do. Appends what to poll, ours to be woken first.
  bool begin_sleep(std::vector<pollfd>& into);
  void end_sleep(bool woken);  // by another thread of this process, or perhaps
  std::optional<Deadline> background_deadline();

  // Whether the progress thread has it on its list.
  bool served() const { return served_.load(std::memory_order_relaxed); }
  void mark_served(bool served = true) { served_.store(served); }

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  std::uint64_t epoch() const { return epoch_; }

 private:
  void drive(const Completion& completion, TimePoint until);
  bool pass();
  void attend(TimePoint now);
  void sleep(const Completion& completion, TimePoint until);
  void take_submissions();
  void take_notices(TimePoint now);
  void record_failure(const Status& verdict, bool tell);
  void suspect_ended_streams();
  void fail_for_loss(Status verdict);
  void announce_completions();
  void tell_of_leftovers();
  void dispose(std::unique_lock<std::mutex>& lock);
  Status recorded_failure();
  template <class Body>
  void guarded(Body&& body);
  std::vector<std::uint32_t> told_by_me() const;
  void say_where_we_wait(TimePoint now);
  void tell_where_we_wait(std::uint32_t to, const Engine::Waiting& waiting, std::vector<std::uint32_t> chain);
  void hear_waiting(const Notice& notice);
  std::string told(const Notice& notice) const;

  const std::uint32_t rank_, size_;
  const std::uint64_t epoch_;
  const bool cores_to_spare_;
  const int owner_;  // process id
  Wake wake_;

  // Held by the baton.
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Notifier> notifier_;
  std::uint32_t passes_ = 0;
  LongWaits long_waits_;
  // A peer is gone: by the launcher's word, or because its stream ended while it was needed. Counts unless, by then, what is
  // under way ends well or a peer tells a verdict, which is better founded than an ended stream.
  struct Suspected {
    TimePoint when;
    Status verdict;
    bool stream_ended = false;
  };
  std::optional<Suspected> suspected_;
  struct Standstill {  // nothing has moved; the peer that is waited for is told where, again and again
    std::uint64_t movements = 0;
    std::optional<TimePoint> tell_at;
    std::chrono::nanoseconds pause{0};
  } standstill_;

  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> has_submissions_{false};
  std::atomic<bool> interrupted_{false};  // failure_ was set by another thread
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> served_{false};
  std::atomic<int> watchers_{0};  // threads on changed_

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool driven_ = false;
  int wanting_ = 0;
  bool closed_ = false;
  Status failure_;
  std::vector<std::unique_ptr<Operation>> submissions_;
  std::uint64_t submitted_ = 0;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<Collective, std::uint32_t>, std::uint64_t> pair_sequences_;
  Counters last_counters_;
};

}  // namespace gradsync
