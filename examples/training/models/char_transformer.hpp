// A small causal transformer that predicts the next character.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace training {

struct TransformerShape {
  std::int64_t vocabulary = 0;
  std::int64_t context = 64;  // characters it sees at most
  std::int64_t width = 96;    // of a character's representation; a multiple of heads
  std::int64_t heads = 4;
  std::int64_t layers = 2;
};

class SelfAttentionImpl : public torch::nn::Module {
 public:
  explicit SelfAttentionImpl(const TransformerShape& shape);
  torch::Tensor forward(const torch::Tensor& x);  // (N, T, width); position t sees positions 0 to t

 private:
  std::int64_t heads_;
  torch::nn::Linear queries_keys_values_, output_;
  torch::Tensor hidden_future_;  // (context, context) bool: true where it must not look
};
TORCH_MODULE(SelfAttention);

// Layer norm before each part, whose result is added to its input (pre-norm; Xiong et al., 2020).
class TransformerLayerImpl : public torch::nn::Module {
 public:
  explicit TransformerLayerImpl(const TransformerShape& shape);
  torch::Tensor forward(torch::Tensor x);  // (N, T, width)

 private:
  torch::nn::LayerNorm attention_norm_, feed_norm_;
  SelfAttention attention_;
  torch::nn::Linear feed_in_, feed_out_;
};
TORCH_MODULE(TransformerLayer);

class CharTransformerImpl : public torch::nn::Module {
 public:
  explicit CharTransformerImpl(const TransformerShape& shape);
  torch::Tensor forward(const torch::Tensor& tokens);  // (N, T) i64, T up to context, to logits (N, T, vocabulary)
  const TransformerShape& shape() const { return shape_; }

 private:
  TransformerShape shape_;
  torch::nn::Embedding characters_, positions_;
  torch::nn::ModuleList layers_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear output_;
};
TORCH_MODULE(CharTransformer);

}  // namespace training
