#include "train/sparse_exchange.hpp"

#include <algorithm>
#include <utility>

#include "base/status.hpp"

namespace gradsync {
namespace {

constexpr std::int64_t kRunOut = 1, kNotFinite = 2, kOrderDiffers = 4, kFailed = 8;

std::int64_t flags_of(const HeaderMine& mine) {
  return (mine.run_out ? kRunOut : 0) | (mine.not_finite ? kNotFinite : 0) | (mine.order_differs ? kOrderDiffers : 0) |
         (mine.failed ? kFailed : 0);
}

std::size_t row_elements_of(const Parameter& parameter) {
  std::size_t elements = 1;
  for (std::size_t i = 1; i < parameter.shape.size(); ++i) elements *= static_cast<std::size_t>(parameter.shape[i]);
  return elements;
}

}  // namespace

void SparseQueue::arrange(std::span<const Parameter> parameters, std::span<const Item> items) {
  std::vector<Sending> next;
  std::vector<std::uint32_t> at(parameters.size());
  for (const Item& item : items) {
    if (!item.sparse) continue;
    const Parameter& parameter = parameters[item.index];
    Sending flight;
    if (!at_.empty()) flight = std::move(flights_[at_[item.index]]);
    flight.parameter = item.index;
    flight.dtype = parameter.dtype;
    flight.row_elements = row_elements_of(parameter);
    flight.rows_total = parameter.shape[0];
    at[item.index] = static_cast<std::uint32_t>(next.size());
    next.push_back(std::move(flight));
  }
  flights_ = std::move(next);
  at_ = std::move(at);
  next_rows_ = 0;
}

void SparseQueue::add(std::uint32_t parameter, SparseRows rows) {
  Sending& flight = flights_[at_[parameter]];
  const std::size_t expected = rows.rows.size() * flight.row_elements * size_of(flight.dtype);
  if (rows.values.size() != expected)
    throw Error(failure(ErrorCode::invalid_argument,
                        "ready_sparse: {} bytes of values for {} rows of {} {}, expected {}", rows.values.size(),
                        rows.rows.size(), flight.row_elements, name_of(flight.dtype), expected));
  for (std::int64_t row : rows.rows)
    if (row < 0 || row >= flight.rows_total)
      throw Error(failure(ErrorCode::invalid_argument, "ready_sparse: row {} of parameter {}, which has rows 0 to {}",
                          row, parameter, flight.rows_total - 1));
  SparseRows& into = flight.pending;
  into.rows.insert(into.rows.end(), rows.rows.begin(), rows.rows.end());
  into.values.insert(into.values.end(), rows.values.begin(), rows.values.end());
}

void SparseQueue::launch(std::uint32_t parameter, Place place, const HeaderMine& mine, double factor,
                         Communicator& lane) {
  Sending& flight = flights_[at_[parameter]];
  const SparseRows pending = std::exchange(flight.pending, {});
  flight.mine =
      factor == 0 ? SparseRows{} : merge_rows(pending, flight.dtype, flight.row_elements, flight.rows_total, factor);
  flight.heads.assign(place.world * kHeadWords, 0);
  std::int64_t* head = flight.heads.data() + place.rank * kHeadWords;
  head[0] = static_cast<std::int64_t>(flight.mine.rows.size());
  head[1] = mine.used.at(0);
  head[2] = static_cast<std::int64_t>(mine.samples);
  head[3] = flags_of(mine);
  flight.launched = true;
  if (place.world > 1)
    flight.heads_work = lane.all_gather_async(ConstView(head, kHeadWords, DType::i64), view(flight.heads));
}

void SparseQueue::launch_rows(Sending& flight, Place place, Communicator& rows) {
  flight.rows_launched = true;
  if (place.world == 1) {
    flight.all = flight.mine;
    return;
  }
  std::vector<std::size_t> counts(place.world), elements(place.world);
  std::size_t total = 0;
  for (std::size_t r = 0; r < place.world; ++r) {
    counts[r] = static_cast<std::size_t>(flight.heads[r * kHeadWords]);
    elements[r] = counts[r] * flight.row_elements;
    total += counts[r];
  }
  flight.all.rows.resize(total);
  flight.all.values.resize(total * flight.row_elements * size_of(flight.dtype));
  if (total == 0) return;
  flight.rows_work = rows.all_gather_async(view(std::as_const(flight.mine.rows)), view(flight.all.rows), counts);
  flight.values_work =
      rows.all_gather_async(ConstView(flight.mine.values.data(), elements[place.rank], flight.dtype),
                            View{flight.all.values.data(), total * flight.row_elements, flight.dtype}, elements);
}

void SparseQueue::push(Place place, Communicator& rows) {
  while (next_rows_ < flights_.size()) {
    Sending& flight = flights_[next_rows_];
    if (!flight.launched || !flight.heads_work.done() || !flight.heads_work.status().ok()) return;
    launch_rows(flight, place, rows);
    ++next_rows_;
  }
}

void SparseQueue::receive(std::uint32_t parameter, Place place, Communicator& rows) {
  for (std::size_t i = 0; i <= at_[parameter]; ++i)
    if (!flights_[i].rows_launched) {
      flights_[i].heads_work.wait();
      push(place, rows);
    }
  Sending& flight = flights_[at_[parameter]];
  flight.rows_work.wait();
  flight.values_work.wait();
}

bool SparseQueue::received(std::uint32_t parameter) const {
  const Sending& flight = flights_[at_[parameter]];
  return flight.rows_launched && flight.rows_work.done() && flight.values_work.done();
}

HeaderSums SparseQueue::sums(std::uint32_t parameter) const {
  const Sending& flight = flights_[at_[parameter]];
  HeaderSums sums;
  sums.used = {0};
  for (std::size_t at = 0; at < flight.heads.size(); at += kHeadWords) {
    const std::int64_t* head = flight.heads.data() + at;
    sums.used[0] += head[1] != 0;
    sums.samples += static_cast<std::uint64_t>(head[2]);
    sums.ranks_run_out += (head[3] & kRunOut) != 0;
    sums.ranks_not_finite += (head[3] & kNotFinite) != 0;
    sums.ranks_order_differs += (head[3] & kOrderDiffers) != 0;
    sums.ranks_failed += (head[3] & kFailed) != 0;
  }
  return sums;
}

void SparseQueue::merge(std::uint32_t parameter, double scale) {
  Sending& flight = flights_[at_[parameter]];
  flight.result = merge_rows(flight.all, flight.dtype, flight.row_elements, flight.rows_total, scale);
  flight.all = {};
  flight.mine = {};
}

void SparseQueue::end_step() {
  for (Sending& flight : flights_) {
    flight.heads_work = flight.rows_work = flight.values_work = {};
    flight.launched = flight.rows_launched = false;
  }
  next_rows_ = 0;
}

void SparseQueue::forget() {
  for (Sending& flight : flights_) {
    flight.mine = flight.all = flight.result = {};
    flight.pending = {};
  }
  end_step();
}

}  // namespace gradsync
