// A barrier that says who is missing, for finding out which rank has gone astray. Ranks check in at the store, where rank 0 looks
// for them and leaves the verdict. It costs a few requests a rank, and needs nothing of the communicator: it works
// while other calls hang, and when it fails the group lives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "c10d/call.hpp"

namespace gradsync::pytorch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How much longer than rank 0 the others wait, so that they hear its verdict.
constexpr milliseconds kVerdictGrace{500};
constexpr const char* kPassed = "passed";

class Attendance {
 public:
  Attendance(::c10d::Store& store, std::uint64_t barrier, int size) : store_(store), barrier_(barrier), size_(size) {}

  void check_in(int rank) { set(rank_key(barrier_, rank), "here"); }
  void decide(const std::string& verdict) { set(verdict_key(barrier_), verdict); }

  // Whether the rank has checked in by then.
  bool waited_for(int rank, Clock::time_point until) { return present(rank_key(barrier_, rank), until); }

  std::optional<std::string> verdict(Clock::time_point until) {
    if (!present(verdict_key(barrier_), until)) return std::nullopt;
    const std::vector<std::uint8_t> text = store_.get(verdict_key(barrier_));
    return std::string(text.begin(), text.end());
  }

  // Everyone has checked in here, so everyone has read the verdict of the barrier before.
  void tidy() {
    for (int rank = 1; rank < size_; ++rank) remove(rank_key(barrier_, rank));
    if (barrier_ > 1) remove(verdict_key(barrier_ - 1));
  }

 private:
  static std::string rank_key(std::uint64_t barrier, int rank) {
    return fmt::format("gradsync/monitored/{}/{}", barrier, rank);
  }
  static std::string verdict_key(std::uint64_t barrier) {
    return fmt::format("gradsync/monitored/{}/verdict", barrier);
  }

  void set(const std::string& key, const std::string& value) {
    store_.set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  bool present(const std::string& key, Clock::time_point until) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    if (left.count() <= 0) return store_.check({key});
    try {
      store_.wait({key}, left);
      return true;
    } catch (const std::exception&) {  // of a type that differs between stores, for a timeout too
      if (Clock::now() + milliseconds(1) < until) throw;
      return false;
    }
  }

  void remove(const std::string& key) {
    try {
      store_.deleteKey(key);
    } catch (const std::exception&) {  // some stores cannot
    }
  }

  ::c10d::Store& store_;
  const std::uint64_t barrier_;
  const int size_;
};

// Rank 0. The error's text, or nothing.
std::optional<std::string> look_for_all(Attendance& attendance, int size, milliseconds timeout, bool all) {
  if (timeout.count() <= 0) return fmt::format("Rank 0 timed out in monitoredBarrier after {} ms.", timeout.count());
  const Clock::time_point until = Clock::now() + timeout;
  std::vector<int> missing;
  for (int rank = 1; rank < size && (all || missing.empty()); ++rank)
    if (!attendance.waited_for(rank, until)) missing.push_back(rank);
  if (missing.empty()) return std::nullopt;
  return fmt::format("{} {} failed to pass monitoredBarrier in {} ms", missing.size() == 1 ? "Rank" : "Ranks",
                     fmt::join(missing, ", "), timeout.count());
}

}  // namespace

void ProcessGroupGradsync::monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) {
  const std::shared_ptr<Session> session = this->session();
  session->comm();  // of a group that has failed the ranks can still be counted, of one that was destroyed not
  const milliseconds timeout = options.timeout == ::c10d::kUnsetTimeout ? session->timeout() : options.timeout;
  Attendance attendance(*session->store(), ++monitored_barriers_, session->size());
  if (session->rank() == 0) {
    const std::optional<std::string> failed = look_for_all(attendance, session->size(), timeout, wait_all_ranks);
    attendance.decide(failed.value_or(kPassed));
    if (failed) throw Error(Status{ErrorCode::timeout, -1, *failed});
    attendance.tidy();
    return;
  }
  attendance.check_in(session->rank());
  const std::optional<std::string> verdict = attendance.verdict(Clock::now() + timeout + kVerdictGrace);
  if (verdict == kPassed) return;
  throw Error(Status{ErrorCode::timeout, 0,
                     fmt::format("Rank {} successfully reached monitoredBarrier, but received errors while waiting for "
                                 "send/recv from rank 0: {}",
                                 session->rank(), verdict.value_or("rank 0 has not answered"))});
}

}  // namespace gradsync::pytorch
