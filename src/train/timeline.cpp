#include "train/timeline.hpp"

#include <algorithm>

namespace gradsync {
namespace {

struct Span {
  double begin, end;
};

// Parts of time, sorted and without overlap.
std::vector<Span> united(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> out;
  for (const Span& span : spans)
    if (!out.empty() && span.begin <= out.back().end) out.back().end = std::max(out.back().end, span.end);
    else out.push_back(span);
  return out;
}

// A bucket is under way from its launch to its end; between the two halves of an exchange in two, nothing of it is.
std::vector<Span> under_way(const StepTimeline& step) {
  std::vector<Span> spans;
  for (const StepTimeline::Bucket& bucket : step.buckets) {
    if (bucket.reduced_s > 0) {
      spans.push_back({bucket.launched_s, bucket.reduced_s});
      spans.push_back({std::max(bucket.reduced_s, step.backward_end_s), bucket.done_s});
    } else {
      spans.push_back({bucket.launched_s, bucket.done_s});
    }
  }
  std::erase_if(spans, [](const Span& span) { return span.end <= span.begin; });
  return united(std::move(spans));
}

}  // namespace

double StepTimeline::communication_s() const {
  double sum = 0;
  for (const Span& span : under_way(*this)) sum += span.end - span.begin;
  return sum;
}

double StepTimeline::hidden_share() const {
  const double all = communication_s();
  if (all <= 0) return 1;
  return std::clamp(1 - waited_s / all, 0.0, 1.0);
}

}  // namespace gradsync
