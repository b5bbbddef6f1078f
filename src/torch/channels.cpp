#include "torch/channels.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

namespace gradsync::torch {
namespace {

constexpr int kLanes = 8;                   // independent sums, so that additions overlap and vectorise
constexpr std::int64_t kGrain = 1ll << 14;  // elements below which a thread is not worth its start

template <class Body>
void for_channels(ChannelLayout layout, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, layout.values()));
  at::parallel_for(0, layout.channels, grain, body);
}

// body(channel, offset of its plane) for all planes, in the order of memory within a thread's channels.
template <class Body>
void for_planes(ChannelLayout layout, const Body& body) {
  for_channels(layout, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = 0; n < layout.batch; ++n)
      for (std::int64_t c = begin; c < end; ++c)
        body(static_cast<std::size_t>(c), (n * layout.channels + c) * layout.inner);
  });
}

// Channels last: body(channel, offset of its element) for all elements; the inner loop runs over channels and vectorises.
template <class Body>
void for_rows(ChannelLayout layout, const Body& body) {
  for_channels(layout, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < layout.values(); ++row)
      for (std::int64_t c = begin; c < end; ++c) body(static_cast<std::size_t>(c), row * layout.channels + c);
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

// sums[channel] += term(channel, offset of an element) over all elements.
template <class Term>
void add_up(ChannelLayout layout, std::vector<double>& sums, const Term& term) {
  double* const sum = sums.data();
  if (layout.channels_last) return for_rows(layout, [=](std::size_t c, std::int64_t at) { sum[c] += term(c, at); });
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    sum[c] += lane_sum(layout.inner, [&](std::int64_t i) { return term(c, at + i); });
  });
}

// body(channel, offset of an element) for all elements.
template <class Body>
void for_elements(ChannelLayout layout, const Body& body) {
  if (layout.channels_last) return for_rows(layout, body);
  for_planes(layout, [&](std::size_t c, std::int64_t at) {
    for (std::int64_t i = at; i < at + layout.inner; ++i) body(c, i);
  });
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
  const T* data() const { return values.data(); }
};

}  // namespace

template <class T>
ChannelMoments channel_moments(const T* x, ChannelLayout layout) {
  ChannelMoments moments{zeros(layout), zeros(layout)};
  if (layout.values() == 0) return moments;
  add_up(layout, moments.mean, [=](std::size_t, std::int64_t i) { return static_cast<double>(x[i]); });
  for (double& mean : moments.mean) mean /= static_cast<double>(layout.values());
  const double* const mean = moments.mean.data();
  add_up(layout, moments.squares, [=](std::size_t c, std::int64_t i) {
    const double deviation = static_cast<double>(x[i]) - mean[c];
    return deviation * deviation;
  });
  return moments;
}

template <class T>
void channel_affine(const T* x, ChannelLayout layout, const ChannelAffine& affine, T* y) {
  const Converted<T> means(affine.mean), scales(affine.scale), shifts(affine.shift);
  const T *const mean = means.data(), *const scale = scales.data(), *const shift = shifts.data();
  for_elements(layout, [=](std::size_t c, std::int64_t i) { y[i] = (x[i] - mean[c]) * scale[c] + shift[c]; });
}

template <class T>
ChannelSums channel_sums(const T* dy, const T* x, ChannelLayout layout, const std::vector<double>& means) {
  ChannelSums sums{zeros(layout), zeros(layout)};
  const double* const mean = means.data();
  add_up(layout, sums.dy, [=](std::size_t, std::int64_t i) { return static_cast<double>(dy[i]); });
  add_up(layout, sums.dy_x, [=](std::size_t c, std::int64_t i) {
    return static_cast<double>(dy[i]) * (static_cast<double>(x[i]) - mean[c]);
  });
  return sums;
}

template <class T>
void channel_gradient(const T* dy, const T* x, ChannelLayout layout, const ChannelGradient& gradient, T* dx) {
  const Converted<T> means(gradient.mean), shifts(gradient.shift), slopes(gradient.slope), scales(gradient.scale);
  const T *const mean = means.data(), *const shift = shifts.data(), *const slope = slopes.data(),
                 *const scale = scales.data();
  for_elements(layout, [=](std::size_t c, std::int64_t i) {
    dx[i] = (dy[i] - shift[c] - (x[i] - mean[c]) * slope[c]) * scale[c];
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
