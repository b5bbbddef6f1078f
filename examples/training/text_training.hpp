// Trains a character-level transformer on text, data-parallel. The ranks' shares of the text differ by a window or so, and so do their
// last batches: gradients are the mean over the samples of all ranks, and a rank that has run out keeps the others company.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "data/text_data.hpp"
#include "gradsync/communicator.hpp"
#include "gradsync/torch/distributed_data_parallel.hpp"
#include "gradsync/torch/distributed_sampler.hpp"
#include "models/char_transformer.hpp"
#include "support/progress.hpp"

namespace training {

struct TextSettings {
  std::string data = text_folder;
  std::uint64_t epochs = 2;
  std::uint64_t steps = 0;   // of each epoch at most; 0: all
  std::uint64_t batch = 32;  // windows of each worker and step
  double learning_rate = 2e-3;
  double gradient_norm_max = 1;
  std::uint64_t seed = 1;
  bool deterministic = false;  // the same bits in every run with as many workers
  int threads = 1;
  std::int64_t sample_characters = 240;
};

class TextTraining {
 public:
  // Collective. `comm` is borrowed.
  TextTraining(TextSettings settings, gradsync::Communicator& comm);
  // Collective. Whether all replicas are identical at the end.
  bool run();

 private:
  void train_epoch(std::uint64_t epoch);
  void train_step(const TextBatch& batch);
  void update();                 // clip, then the optimiser
  double validation_loss();      // bits a character over the text that training never sees
  std::string generated_text();  // continues a few words

  TextSettings settings_;
  gradsync::Communicator& comm_;
  std::string text_;
  Tokeniser tokeniser_;
  torch::Tensor tokens_;
  TransformerShape shape_;
  TextWindows train_, validation_;
  CharTransformer net_;
  gradsync::torch::DistributedDataParallel<CharTransformerImpl> replica_;
  torch::optim::AdamW optimizer_;
  gradsync::torch::DistributedSampler sampler_;
  Progress progress_;
  std::uint64_t step_ = 0;
  double began_s_ = 0, loss_ = 0;  // loss_: of this rank's last batch, bits a character
};

}  // namespace training
