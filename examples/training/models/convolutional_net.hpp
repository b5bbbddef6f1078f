// Two convolutions with batch norm and two linear layers: 421,738 parameters, 1.6 MiB of gradients.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace training {

// Makes a batch norm over that many channels: torch::nn::BatchNorm2d, or gradsync's over all ranks.
using NormFactory = std::function<torch::nn::AnyModule(std::int64_t channels)>;

class ConvolutionalNetImpl : public torch::nn::Module {
 public:
  explicit ConvolutionalNetImpl(const NormFactory& norm);
  torch::Tensor forward(torch::Tensor images);  // (N, 1, 28, 28) f32 to logits (N, 10)

 private:
  torch::nn::Conv2d first_, second_;
  torch::nn::AnyModule first_norm_, second_norm_;
  torch::nn::Linear hidden_, output_;
};
TORCH_MODULE(ConvolutionalNet);

}  // namespace training
