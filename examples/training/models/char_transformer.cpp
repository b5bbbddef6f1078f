#include "models/char_transformer.hpp"

#include <cmath>
#include <limits>

namespace training {
namespace {

constexpr std::int64_t feed_factor = 4;

torch::nn::LayerNorm norm_over(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

}  // namespace

SelfAttentionImpl::SelfAttentionImpl(const TransformerShape& shape)
    : heads_(shape.heads),
      queries_keys_values_(shape.width, 3 * shape.width),
      output_(shape.width, shape.width) {
  TORCH_CHECK(shape.width % shape.heads == 0, "width ", shape.width, " is not a multiple of ", shape.heads, " heads");
  register_module("queries_keys_values", queries_keys_values_);
  register_module("output", output_);
  hidden_future_ = register_buffer("hidden_future", torch::ones({shape.context, shape.context}, torch::kBool).triu(1));
}

torch::Tensor SelfAttentionImpl::forward(const torch::Tensor& x) {
  const auto n = x.size(0), length = x.size(1), width = x.size(2);
  // (N, T, 3 * width) to three of (N, heads, T, width / heads).
  const auto parts = queries_keys_values_(x).view({n, length, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  const auto queries = parts[0], keys = parts[1], values = parts[2];
  const double scale = 1 / std::sqrt(static_cast<double>(width / heads_));
  const auto hidden = hidden_future_.narrow(0, 0, length).narrow(1, 0, length);
  const auto scores =
      (queries.matmul(keys.transpose(-2, -1)) * scale).masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const auto mixed = torch::softmax(scores, -1).matmul(values);
  return output_(mixed.transpose(1, 2).reshape({n, length, width}));
}

TransformerLayerImpl::TransformerLayerImpl(const TransformerShape& shape)
    : attention_norm_(norm_over(shape.width)),
      feed_norm_(norm_over(shape.width)),
      attention_(shape),
      feed_in_(shape.width, feed_factor * shape.width),
      feed_out_(feed_factor * shape.width, shape.width) {
  register_module("attention_norm", attention_norm_);
  register_module("attention", attention_);
  register_module("feed_norm", feed_norm_);
  register_module("feed_in", feed_in_);
  register_module("feed_out", feed_out_);
}

torch::Tensor TransformerLayerImpl::forward(torch::Tensor x) {
  x = x + attention_(attention_norm_(x));
  return x + feed_out_(torch::gelu(feed_in_(feed_norm_(x))));
}

CharTransformerImpl::CharTransformerImpl(const TransformerShape& shape)
    : shape_(shape),
      characters_(shape.vocabulary, shape.width),
      positions_(shape.context, shape.width),
      norm_(norm_over(shape.width)),
      output_(shape.width, shape.vocabulary) {
  register_module("characters", characters_);
  register_module("positions", positions_);
  for (std::int64_t i = 0; i < shape.layers; ++i) layers_->push_back(TransformerLayer(shape));
  register_module("layers", layers_);
  register_module("norm", norm_);
  register_module("output", output_);
}

torch::Tensor CharTransformerImpl::forward(const torch::Tensor& tokens) {
  auto x = characters_(tokens) + positions_(torch::arange(tokens.size(1)));
  for (const auto& layer : *layers_) x = layer->as<TransformerLayerImpl>()->forward(x);
  return output_(norm_(x));
}

}  // namespace training
