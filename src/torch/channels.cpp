#include "torch/channels.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace gradsync::torch {
namespace {

constexpr int kLanes = 8;                   // independent sums, so that additions overlap and vectorise
constexpr std::int64_t kGrain = 1ll << 14;  // elements below which a thread is not worth its start

// body(channel, offset of its plane) for all planes, in the order of memory within a thread's channels.
template <class Body>
void for_planes(ChannelLayout layout, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, layout.values()));
  at::parallel_for(0, layout.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < layout.batch; ++n)
      for (std::int64_t c = begin; c < end; ++c)
        body(static_cast<std::size_t>(c), (n * layout.channels + c) * layout.inner);
  });
}

template <class Term>
double lane_sum(std::int64_t count, const Term& term) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[static_cast<std::size_t>(lane)] += term(i + lane);
  double sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (const double lane : lanes) sum += lane;
  return sum;
}

std::vector<double> zeros(ChannelLayout layout) {
  return std::vector<double>(static_cast<std::size_t>(layout.channels));
}

template <class T>
struct Converted {  // per-channel numbers in the element type
  std::vector<T> values;
  explicit Converted(const std::vector<double>& from) : values(from.size()) {
    std::transform(from.begin(), from.end(), values.begin(), [](double v) { return static_cast<T>(v); });
  }
  T operator[](std::size_t c) const { return values[c]; }
};

}  // namespace

template <class T>
ChannelMoments channel_moments(const T* x, ChannelLayout layout) {
  ChannelMoments moments{zeros(layout), zeros(layout)};
  if (layout.values() == 0) return moments;
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    moments.mean[c] += lane_sum(layout.inner, [&](std::int64_t i) { return static_cast<double>(x[at + i]); });
  });
  for (double& mean : moments.mean) mean /= static_cast<double>(layout.values());
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    const double mean = moments.mean[c];
    moments.squares[c] += lane_sum(layout.inner, [&](std::int64_t i) {
      const double deviation = static_cast<double>(x[at + i]) - mean;
      return deviation * deviation;
    });
  });
  return moments;
}

template <class T>
void channel_affine(const T* x, ChannelLayout layout, const ChannelAffine& affine, T* y) {
  const Converted<T> mean(affine.mean), scale(affine.scale), shift(affine.shift);
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    const T m = mean[c], a = scale[c], b = shift[c];
    for (std::int64_t i = at; i < at + layout.inner; ++i) y[i] = (x[i] - m) * a + b;
  });
}

template <class T>
ChannelSums channel_sums(const T* dy, const T* x, ChannelLayout layout, const std::vector<double>& mean) {
  ChannelSums sums{zeros(layout), zeros(layout)};
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    const double m = mean[c];
    sums.dy[c] += lane_sum(layout.inner, [&](std::int64_t i) { return static_cast<double>(dy[at + i]); });
    sums.dy_x[c] += lane_sum(layout.inner, [&](std::int64_t i) {
      return static_cast<double>(dy[at + i]) * (static_cast<double>(x[at + i]) - m);
    });
  });
  return sums;
}

template <class T>
void channel_gradient(const T* dy, const T* x, ChannelLayout layout, const ChannelGradient& gradient, T* dx) {
  const Converted<T> mean(gradient.mean), shift(gradient.shift), slope(gradient.slope), scale(gradient.scale);
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    const T m = mean[c], a = shift[c], b = slope[c], s = scale[c];
    for (std::int64_t i = at; i < at + layout.inner; ++i) dx[i] = (dy[i] - a - (x[i] - m) * b) * s;
  });
}

#define GRADSYNC_CHANNELS(T)                                                                        \
  template ChannelMoments channel_moments(const T*, ChannelLayout);                                 \
  template void channel_affine(const T*, ChannelLayout, const ChannelAffine&, T*);                  \
  template ChannelSums channel_sums(const T*, const T*, ChannelLayout, const std::vector<double>&); \
  template void channel_gradient(const T*, const T*, ChannelLayout, const ChannelGradient&, T*);
GRADSYNC_CHANNELS(float)
GRADSYNC_CHANNELS(double)
#undef GRADSYNC_CHANNELS

}  // namespace gradsync::torch
