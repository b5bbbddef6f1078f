// A convolutional network learns to tell ten kinds of clothes apart, on any number of workers.
//
//   gradsync run -n 2 -- build/examples/training/fashion_mnist --epochs 3 --batch 128
//
// The workers' batches together are the batches of one process with --batch times as large, and the result is the same
// but for rounding: batch norm is over all of them, gradients are averaged while backward still runs. Data: Debian's
// package dataset-fashion-mnist.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "fashion_training.hpp"
#include "support/settings.hpp"

namespace {

void add_options(CLI::App& app, training::FashionSettings& settings, std::string& overlap) {
  app.add_option("--epochs", settings.epochs, "passes over the training images")->check(CLI::Range(1, 1000));
  app.add_option("--steps", settings.steps, "end after so many steps; the learning rate is still that of --epochs")
      ->check(training::count(0));
  app.add_option("--batch", settings.batch, "images of each worker and step")->check(training::count(0, 1 << 30));
  app.add_option("--lr", settings.learning_rate, "learning rate at its peak")->check(training::positive_number());
  app.add_option("--seed", settings.seed, "of the parameters and of the order of the images")
      ->check(training::count(0));
  app.add_option("--threads", settings.threads, "of libtorch in each worker")->check(CLI::Range(1, 1024));
  app.add_option("--overlap", overlap, "hide the exchange under backward, or under backward and the next forward")
      ->check(CLI::IsMember({"backward", "forward"}));
  app.add_option("--bucket-bytes", settings.bucket_bytes,
                 "largest message of gradients; 0: planned from what is measured")
      ->check(training::count(0));
  app.add_flag("--deterministic", settings.deterministic, "the same bits in every run with as many workers");
  app.add_flag("--check-finite", settings.check_finite, "stop at a gradient that is NaN or infinite, and name it");
  app.add_flag("--reference", settings.reference, "one worker, with nothing but libtorch");
  app.add_flag("--reverse-batches", settings.reverse_batches, "the images of each batch in reverse order");
  app.add_option("--data", settings.data, "folder of the dataset");
  app.add_option("--curve", settings.curve, "write losses, accuracy and speed to this file (JSON)");
  app.add_option("--trace", settings.trace, "write one step's timeline to this file (Chrome's trace event format)");
  app.add_option("--checkpoint", settings.checkpoint, "write the state after each epoch to this file");
  app.add_option("--resume", settings.resume, "go on from this checkpoint, with any number of workers");
  app.option_defaults()->always_capture_default();
}

}  // namespace

int main(int argc, char** argv) try {
  training::FashionSettings settings;
  std::string overlap = "backward";
  CLI::App app("Trains a convolutional network on Fashion-MNIST");
  add_options(app, settings, overlap);
  CLI11_PARSE(app, argc, argv);
  settings.overlap_forward = overlap == "forward";

  auto comm = gradsync::Communicator::create();
  const std::string curve = settings.curve;
  const auto record = training::FashionTraining(std::move(settings), comm).run();
  if (comm.rank() == 0 && !curve.empty()) training::write_record(record, curve);
  for (const auto& fingerprint : record.fingerprints)
    if (fingerprint != record.fingerprints.front()) return 1;
  return 0;
} catch (const c10::Error& error) {
  return std::fprintf(stderr, "fashion_mnist: %s\n", error.what_without_backtrace()), 1;
} catch (const std::exception& error) { return std::fprintf(stderr, "fashion_mnist: %s\n", error.what()), 1; }
