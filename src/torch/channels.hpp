// Batch norm's arithmetic over (batch, channels, inner) arrays, or (batch, inner, channels) ones where channels are last: sums in
// f64, elements in their own type. One pass over memory each, channels shared between libtorch's threads; a channel's sum
// does not depend on their number.
#pragma once

#include <cstdint>
#include <vector>

namespace gradsync::torch {

struct ChannelLayout {
  std::int64_t batch = 0, channels = 0, inner = 1;
  bool channels_last = false;                            // in memory
  std::int64_t values() const { return batch * inner; }  // a channel
};

struct ChannelMoments {
  std::vector<double> mean,
      squares;  // squares: sum of squared deviations from the mean; both 0 where there are no values
};
template <class T>
ChannelMoments channel_moments(const T* x, ChannelLayout layout);

// y = (x - mean) * scale + shift
struct ChannelAffine {
  std::vector<double> mean, scale, shift;
};
template <class T>
void channel_affine(const T* x, ChannelLayout layout, const ChannelAffine& affine, T* y);

// Sums over dy and over dy * (x - mean).
struct ChannelSums {
  std::vector<double> dy, dy_x;
};
template <class T>
ChannelSums channel_sums(const T* dy, const T* x, ChannelLayout layout, const std::vector<double>& mean);

// dx = (dy - shift - (x - mean) * slope) * scale
struct ChannelGradient {
  std::vector<double> mean, shift, slope, scale;
};
template <class T>
void channel_gradient(const T* dy, const T* x, ChannelLayout layout, const ChannelGradient& gradient, T* dx);

}  // namespace gradsync::torch
