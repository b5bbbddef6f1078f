// Trains a convolutional network on Fashion-MNIST, data-parallel over the ranks of a communicator or, as the reference to compare with,
// in one process with nothing but libtorch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

#include "data/fashion_mnist_data.hpp"
#include "gradsync/communicator.hpp"
#include "gradsync/torch/distributed_data_parallel.hpp"
#include "gradsync/torch/distributed_sampler.hpp"
#include "models/convolutional_net.hpp"
#include "support/progress.hpp"
#include "support/record.hpp"
#include "support/step_trace.hpp"

namespace training {

struct FashionSettings {
  std::string data = fashion_mnist_folder;
  std::uint64_t epochs = 3;
  std::uint64_t steps = 0;      // end after so many steps; 0: after the epochs
  std::uint64_t batch = 128;    // samples of each worker and step
  double learning_rate = 0.01;  // at its peak; see FashionTraining::learning_rate
  std::uint64_t seed = 1;
  int threads = 1;                 // of libtorch, in each worker
  bool overlap_forward = false;    // the all-gather half of the exchange under the next forward
  std::uint64_t bucket_bytes = 0;  // 0: planned
  bool deterministic = false;      // the same bits in every run with as many workers
  bool check_finite = false;
  bool reference = false;        // plain libtorch: BatchNorm2d, no DistributedDataParallel; one worker only
  bool reverse_batches = false;  // the samples of each batch in reverse: the same mathematics, other rounding
  std::string curve, trace, checkpoint, resume;  // files; empty: none
};

class FashionTraining {
 public:
  // Collective. `comm` is borrowed.
  FashionTraining(FashionSettings settings, gradsync::Communicator& comm);
  // Collective. Returns the record of the run, of which rank 0's is complete.
  RunRecord run();

 private:
  std::uint64_t steps_per_epoch() const;
  std::uint64_t steps_total() const;
  double learning_rate(std::uint64_t step) const;
  torch::Tensor forward(const torch::Tensor& images);

  void resume();
  void train_epoch(std::uint64_t epoch);
  void train_step(const ImageBatch& batch);
  void note_step(const StepSpans& spans);
  void end_epoch(std::uint64_t epoch);
  Evaluation evaluate();
  void finish_record(double seconds);

  FashionSettings settings_;
  gradsync::Communicator& comm_;
  ImageSet train_, test_;
  ConvolutionalNet net_;
  std::unique_ptr<gradsync::torch::DistributedDataParallel<ConvolutionalNetImpl>> replica_;  // none in the reference
  torch::optim::SGD optimizer_;
  gradsync::torch::DistributedSampler sampler_;
  Progress progress_;
  StepTrace trace_;
  RunRecord record_;
  std::uint64_t step_ = 0, first_epoch_ = 0, steps_measured_ = 0;
  double began_s_ = 0;
  std::vector<double> step_s_, local_losses_;  // of every step of this rank; of this epoch's steps
};

}  // namespace training
