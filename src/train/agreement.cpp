#include "train/agreement.hpp"

#include <algorithm>
#include <numeric>

#include "base/random.hpp"

namespace gradsync {
namespace {

std::uint64_t hash_of(std::span<const std::uint32_t> order) {
  std::uint64_t hash = order.size();
  for (std::uint32_t p : order) hash = mix64(hash ^ p);
  return hash;
}

// Largest and smallest of both halves of the hash in one maximum: halves are exact in f64.
constexpr std::size_t kHashWords = 4;
void put_hash(std::uint64_t hash, std::vector<double>& into) {
  for (const std::uint64_t half : {hash >> 32, hash & 0xffffffff}) {
    into.push_back(static_cast<double>(half));
    into.push_back(-static_cast<double>(half));
  }
}
bool all_equal(std::span<const double> hash) { return hash[0] == -hash[1] && hash[2] == -hash[3]; }

void agree_on_order(Communicator& control, std::vector<std::uint32_t>& order) {
  std::vector<std::uint64_t> positions(order.size());
  for (std::size_t at = 0; at < order.size(); ++at) positions[order[at]] = at;
  control.all_reduce(view(positions), ReduceOp::sum);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return positions[a] < positions[b]; });
}

}  // namespace

void agree(Communicator& control, Observed& observed) {
  std::vector<double> words;
  put_hash(hash_of(observed.order), words);
  words.insert(words.end(), {observed.backward_s, observed.exposed_s, observed.step_s});
  words.insert(words.end(), observed.ready_s.begin(), observed.ready_s.end());
  control.all_reduce(view(words), ReduceOp::max);
  observed.backward_s = words[kHashWords];
  observed.exposed_s = words[kHashWords + 1];
  observed.step_s = words[kHashWords + 2];
  std::copy(words.begin() + kHashWords + 3, words.end(), observed.ready_s.begin());
  if (!all_equal(words)) agree_on_order(control, observed.order);
}

bool ExchangeSchedule::due(std::uint64_t sends, bool order_differs) const {
  if (sends < kPlannedAfter || done_ >= kMost) return false;
  return done_ == 0 || (order_differs && sends >= not_before_);
}

void ExchangeSchedule::done(std::uint64_t sends) {
  ++done_;
  not_before_ = sends + pause_;
  if (pause_ < (std::uint64_t{1} << 20)) pause_ *= 2;
}

}  // namespace gradsync
