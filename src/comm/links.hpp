// What the ports of the hosts carry: measured by a group's first long all-reduce, agreed by all ranks, and watched from then
// on.
//
// Nobody ever waits for it: what is measured, is measured by operations of the library's own that are queued before a
// call of the user's, in the same order on every rank, and whatever depends on the result is decided when an operation's turn
// has come, after all before it have ended. So all ranks decide by equal numbers, though none knows when the others do.
//
//   first long call    [barrier, hosts send to their d-th next] for a few d,
//                      [barrier, hosts send many empty messages], [agree on the rates]                 the call
//   every 16th         [agree on the times of the last 16], and, if they have changed, the same again  the call
//   two calls later    [agree on the times of these two], which had equal parts for once               the call
//
// See docs/decisions/010-unequal-links.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/plan.hpp"
#include "engine/operation.hpp"
#include "schedule/emit.hpp"

namespace gradsync {

class Links : public std::enable_shared_from_this<Links> {
 public:
  struct Setup {
    std::uint32_t rank = 0, size = 1;
    std::vector<std::uint32_t> hosts;  // of each rank, numbered by first appearance
    std::shared_ptr<PlanBook> plans;
    std::vector<HostPort> known;  // by host, from a group that measured them; or none
    double overhead_s = 0;        // with them
  };
  explicit Links(Setup setup);

  // Whether the group has links that could differ and parts to move: three hosts or more.
  bool matter() const { return firsts_.size() >= 3; }
  // Whether a call that leaves the choice to the library is planned in its turn, as its parts may be uneven.
  bool plans_in_turn(Collective collective, std::uint64_t bytes) const;
  // By host, as measured so far.
  std::vector<HostPort> known() const;
  double overhead_s() const;

  // A call on its way to the engine: if it may have uneven parts, it will be planned in its turn. True if it is a watched
  // one; then `before` is to be submitted before it, and `submitted` told.
  bool prepare(Request& call, const CallOptions& options);
  std::vector<Request> before(const Request& call);
  void submitted();
  // A measurement, whatever the times say.
  std::vector<Request> measurement(Deadline deadline);
  void measurement_submitted();

 private:
  struct Round;
  std::uint32_t distance(std::size_t number) const;
  std::size_t distances() const;
  void append_measurement(std::vector<Request>& to, const std::shared_ptr<Round>& round);
  Request own(const Round& round, std::size_t number) const;
  Request barrier(const std::shared_ptr<Round>& round, std::size_t number);
  Request exchange(const std::shared_ptr<Round>& round, std::size_t number, std::function<void(Emit&, Request&)> emit);
  Request shift(const std::shared_ptr<Round>& round, std::size_t number, std::size_t distance_number);
  Request patter(const std::shared_ptr<Round>& round, std::size_t number);
  Request agreement(const std::shared_ptr<Round>& round, std::size_t number, ReduceOp op, std::size_t count) const;
  Request look(const std::shared_ptr<Round>& round, bool at_end);
  void skip(Request& request) const;
  void observe(std::uint64_t bytes, double seconds);
  bool end_window(double seconds_a_byte);
  void end_trial(double seconds_a_byte);
  void conclude(const std::vector<double>& agreed);

  const std::uint32_t rank_, size_;
  const std::vector<std::uint32_t> hosts_;
  const std::shared_ptr<PlanBook> plans_;
  std::vector<std::uint32_t> firsts_;  // the first rank of each host

  mutable std::mutex mutex_;  // guards what follows
  // In the order of submissions.
  bool asked_ = false;       // for a measurement
  bool given_ = false;       // what is to precede the next watched call
  std::uint64_t calls_ = 0;  // watched ones
  // In the order of turns.
  std::vector<HostPort> known_;
  double overhead_s_ = 0;
  // After the first window with uneven parts a few calls have equal ones, to see which are faster.
  enum class Trial : std::uint8_t { none, uneven, even } trial_ = Trial::none;
  int magnitude_ = 0;  // of the bytes of the calls whose times are compared; 0: of the next one
  double fastest_ = 0,
         usual_ = 0;          // seconds a byte: of this window's fastest call; of the window after the last measurement
  std::uint32_t alarms_ = 0;  // windows in a row that were different
  std::uint32_t quiet_ = 0, quiet_next_ = 1;
};

// The ports that plans are made for: those close to the median are the median; none where parts of equal size would take
// less than 1 / 0.85 of the time of uneven ones.
std::vector<HostPort> ports_to_plan_for(const std::vector<HostPort>& measured);
// Whether some port's time a byte differs by more than 20 %.
bool differ(const std::vector<HostPort>& a, const std::vector<HostPort>& b);

}  // namespace gradsync
