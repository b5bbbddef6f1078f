#include "train/readiness.hpp"

#include <algorithm>
#include <utility>

namespace gradsync {

Readiness::Readiness(ItemsOf items_of, std::size_t items)
    : items_of_(std::move(items_of)),
      in_item_(items),
      marked_(items_of_.size()),
      used_(items_of_.size()),
      accumulated_(items_of_.size()),
      ready_s_(items_of_.size()),
      item_ready_s_(items) {
  for (const auto& held_by : items_of_)
    for (std::uint32_t k : held_by) ++in_item_[k];
  order_.reserve(items_of_.size());
  begin_step();
}

void Readiness::begin_step() {
  waiting_ = in_item_;
  std::fill(marked_.begin(), marked_.end(), false);
  std::fill(used_.begin(), used_.end(), false);
  std::fill(ready_s_.begin(), ready_s_.end(), 0.0);
  std::fill(item_ready_s_.begin(), item_ready_s_.end(), 0.0);
  order_.clear();
  next_ = 0;
  order_differs_ = any_marked_ = false;
}

void Readiness::end_step() { std::fill(accumulated_.begin(), accumulated_.end(), false); }

bool Readiness::mark(std::uint32_t parameter, bool used, double seconds) {
  if (marked_[parameter]) return false;
  marked_[parameter] = any_marked_ = true;
  used_[parameter] = used;
  ready_s_[parameter] = seconds;
  if (used) order_.push_back(parameter);
  for (std::uint32_t k : items_of_[parameter]) {
    --waiting_[k];
    item_ready_s_[k] = std::max(item_ready_s_[k], seconds);
  }
  const auto& held_by = items_of_[parameter];
  if (used && !held_by.empty() && held_by.front() > next_ && waiting_[next_] > 0) order_differs_ = true;
  return true;
}

}  // namespace gradsync
