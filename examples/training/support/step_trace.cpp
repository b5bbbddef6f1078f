#include "support/step_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

namespace training {
namespace {

using nlohmann::json;

constexpr std::size_t steps_kept_max = 31;
constexpr int compute_row = 0, first_bucket_row = 1;

// A step as numbers, to be sent: 8 of the step, then 5 of each bucket.
std::vector<double> encode(const StepSpans& step) {
  const auto& sync = step.sync;
  std::vector<double> numbers = {
      step.begin_s,          step.forward_end_s,  step.backward_end_s, step.end_s,
      sync.backward_begin_s, sync.backward_end_s, sync.finish_s,       static_cast<double>(sync.step)};
  for (const auto& bucket : sync.buckets)
    numbers.insert(numbers.end(), {static_cast<double>(bucket.index), static_cast<double>(bucket.bytes), bucket.ready_s,
                                   bucket.launched_s, bucket.done_s});
  return numbers;
}

StepSpans decode(std::span<const double> n) {
  StepSpans step{n[0], n[1], n[2], n[3], {}};
  step.sync.backward_begin_s = n[4];
  step.sync.backward_end_s = n[5];
  step.sync.finish_s = n[6];
  step.sync.step = static_cast<std::uint64_t>(n[7]);
  for (std::size_t i = 8; i + 5 <= n.size(); i += 5) {
    gradsync::StepTimeline::Bucket bucket;
    bucket.index = static_cast<std::uint32_t>(n[i]);
    bucket.bytes = static_cast<std::size_t>(n[i + 1]);
    bucket.ready_s = n[i + 2];
    bucket.launched_s = n[i + 3];
    bucket.done_s = n[i + 4];
    step.sync.buckets.push_back(bucket);
  }
  return step;
}

std::size_t median_step(const std::deque<StepSpans>& steps) {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](std::size_t a, std::size_t b) { return steps[a].end_s < steps[b].end_s; });
  return *middle;
}

// A complete event ("X"): one bar. Times in microseconds, as the format wants them.
json bar(const std::string& name, std::size_t rank, std::size_t row, double begin_s, double end_s, json details) {
  return {{"name", name},
          {"ph", "X"},
          {"pid", rank},
          {"tid", row},
          {"ts", 1e6 * begin_s},
          {"dur", 1e6 * std::max(0.0, end_s - begin_s)},
          {"args", std::move(details)}};
}

json label(const char* what, std::size_t rank, std::size_t row, const std::string& text) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", text}}}};
}

void add_compute(json& events, const StepSpans& step, std::size_t rank, double zero_s) {
  const double at = step.begin_s - zero_s;
  const json number = {{"step", step.sync.step}};
  // The exchange may end before backward does: then finish() returns at once.
  const double computed_s = step.sync.backward_end_s > 0 ? step.sync.backward_end_s : step.backward_end_s;
  events.push_back(label("process_name", rank, compute_row, fmt::format("rank {}", rank)));
  events.push_back(label("thread_name", rank, compute_row, "compute"));
  events.push_back(bar("forward", rank, compute_row, at, at + step.forward_end_s, number));
  events.push_back(bar("backward", rank, compute_row, at + step.forward_end_s, at + computed_s, number));
  events.push_back(bar("wait", rank, compute_row, at + computed_s, at + step.backward_end_s, number));
  events.push_back(bar("optimiser", rank, compute_row, at + step.backward_end_s, at + step.end_s, number));
}

void add_buckets(json& events, const StepSpans& step, std::size_t rank, double zero_s) {
  const double at = step.begin_s - zero_s;
  for (const auto& bucket : step.sync.buckets) {
    const std::size_t row = first_bucket_row + bucket.index;
    const auto name = fmt::format("bucket {}", bucket.index);
    events.push_back(label("thread_name", rank, row, name));
    events.push_back(bar(name, rank, row, at + bucket.launched_s, at + bucket.done_s,
                         {{"bytes", bucket.bytes}, {"ready_us", 1e6 * (at + bucket.ready_s)}}));
  }
}

}  // namespace

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void StepTrace::add(StepSpans step) {
  kept_.push_back(std::move(step));
  if (kept_.size() > steps_kept_max) kept_.pop_front();
}

std::vector<StepSpans> StepTrace::collect(gradsync::Communicator& comm) const {
  if (kept_.empty()) return {};
  std::vector<std::uint64_t> chosen = {median_step(kept_)};
  comm.broadcast(gradsync::view(chosen), 0);
  const auto mine = encode(kept_.at(chosen[0]));
  std::vector<double> all(comm.rank() == 0 ? mine.size() * static_cast<std::size_t>(comm.size()) : 0);
  comm.gather(gradsync::view(mine), gradsync::view(all), 0);
  std::vector<StepSpans> ranks;
  for (std::size_t begin = 0; begin < all.size(); begin += mine.size())
    ranks.push_back(decode(std::span(all).subspan(begin, mine.size())));
  // Another host has another clock: its ranks are drawn as if they had begun with rank 0.
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (comm.hosts()[rank] != comm.hosts()[0]) ranks[rank].begin_s = ranks[0].begin_s;
  return ranks;
}

void write_trace(const std::vector<StepSpans>& ranks, const std::filesystem::path& file) {
  double zero_s = ranks.empty() ? 0 : ranks[0].begin_s;
  for (const auto& step : ranks) zero_s = std::min(zero_s, step.begin_s);
  auto events = json::array();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    add_compute(events, ranks[rank], rank, zero_s);
    add_buckets(events, ranks[rank], rank, zero_s);
  }
  std::ofstream out(file);
  out << json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump(1) << '\n';
  out.close();
  if (!out) throw std::runtime_error(file.string() + ": cannot be written: " + std::strerror(errno));
}

}  // namespace training
