// Which gradients of the step are ready, which item may go next, and in which order they came. Touches no memory but its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/items.hpp"

namespace gradsync {

class Readiness {
 public:
  Readiness() = default;
  Readiness(ItemsOf items_of, std::size_t items);

  void begin_step();  // what was accumulated stays
  void end_step();    // forgets what was accumulated

  // False if it was marked before in this step. `seconds`: since the step began.
  bool mark(std::uint32_t parameter, bool used, double seconds);
  void accumulate(std::uint32_t parameter) { accumulated_[parameter] = true; }

  bool any_marked() const { return any_marked_; }
  bool marked(std::uint32_t parameter) const { return marked_[parameter]; }
  bool accumulated(std::uint32_t parameter) const { return accumulated_[parameter]; }
  bool used(std::uint32_t parameter) const { return used_[parameter] || accumulated_[parameter]; }

  // Items leave strictly in order: the next one, if all its gradients are marked.
  bool may_launch() const { return next_ < waiting_.size() && waiting_[next_] == 0; }
  std::uint32_t next() const { return next_; }
  void launched() { ++next_; }
  bool all_launched() const { return next_ == waiting_.size(); }

  // A gradient was ready while an item before its own still waited for another one.
  bool order_differs() const { return order_differs_; }
  std::span<const std::uint32_t> order() const { return order_; }  // of those marked as ready
  double ready_s(std::uint32_t parameter) const { return ready_s_[parameter]; }
  double item_ready_s(std::uint32_t item) const { return item_ready_s_[item]; }

 private:
  ItemsOf items_of_;
  std::vector<std::uint32_t> in_item_, waiting_;  // parameters of each item, and those not yet marked
  std::vector<bool> marked_, used_, accumulated_;
  std::vector<double> ready_s_, item_ready_s_;
  std::vector<std::uint32_t> order_;
  std::uint32_t next_ = 0;
  bool order_differs_ = false, any_marked_ = false;
};

}  // namespace gradsync
