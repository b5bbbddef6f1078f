#include "train/weights.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gradsync {

void Weights::begin_step() {
  samples_.reset();
  agreed_ = assumed_;
  shift_ = 0;
}

void Weights::set(std::uint64_t samples, Communicator& control) {
  samples_ = samples + accumulated_;
  if (!exchanges()) return;
  exchange_.wait();  // of a step that was given up
  exchange_ = {};
  counts_[setup_.rank] = *samples_;
  if (setup_.world > 1)
    exchange_ = control.all_gather_async(ConstView(&counts_[setup_.rank], 1, DType::u64), view(counts_));
}

void Weights::agree() {
  if (!exchanges()) return;
  exchange_.wait();
  agreed_ = std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
  const std::uint64_t most = *std::max_element(counts_.begin(), counts_.end());
  if (agreed_ == 0) return;
  const double largest = static_cast<double>(most) * setup_.world / static_cast<double>(agreed_);
  if (setup_.has_f16) shift_ = std::max(0, static_cast<int>(std::ceil(std::log2(largest))));
}

double Weights::mine() const {
  if (!setup_.on) return 1;
  if (agreed_ == 0) return 0;
  return static_cast<double>(samples()) * setup_.world / static_cast<double>(agreed_);
}

double Weights::factor(DType dtype) const { return dtype == DType::f16 ? std::ldexp(mine(), -shift_) : mine(); }

double Weights::correction(DType dtype, std::uint64_t total) const {
  if (!setup_.on || total == 0) return 1;
  const double exact = total == agreed_ ? 1 : static_cast<double>(agreed_) / static_cast<double>(total);
  return dtype == DType::f16 ? std::ldexp(exact, shift_) : exact;
}

void Weights::end_step(std::uint64_t total) {
  if (total > 0) assumed_ = total;
  accumulated_ = 0;
}

}  // namespace gradsync
