// A small transformer learns to write, character by character, on any number of workers.
//
//   gradsync run -n 2 -- build/examples/training/char_transformer --epochs 2
//
// Text: Debian's package fortunes. Prints the loss in bits a character (a text of random characters would need 6.6)
// and, at the end, a few lines of its own.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "support/settings.hpp"
#include "text_training.hpp"

namespace {

void add_options(CLI::App& app, training::TextSettings& settings) {
  app.add_option("--epochs", settings.epochs, "passes over the text")->check(CLI::Range(1, 1000));
  app.add_option("--steps", settings.steps, "of each epoch at most; 0: all")->check(training::count(0));
  app.add_option("--batch", settings.batch, "windows of text of each worker and step")
      ->check(training::count(0, 1 << 30));
  app.add_option("--lr", settings.learning_rate, "learning rate")->check(training::positive_number());
  app.add_option("--clip", settings.gradient_norm_max, "largest norm of the gradient")
      ->check(training::positive_number());
  app.add_option("--seed", settings.seed, "of the parameters, the order and the sample")->check(training::count(0));
  app.add_flag("--deterministic", settings.deterministic, "the same bits in every run with as many workers");
  app.add_option("--threads", settings.threads, "of libtorch in each worker")->check(CLI::Range(1, 1024));
  app.add_option("--sample", settings.sample_characters, "characters to write at the end")
      ->check(CLI::Range(0, 100000));
  app.add_option("--data", settings.data, "folder of the text's files");
}

}  // namespace

int main(int argc, char** argv) try {
  training::TextSettings settings;
  CLI::App app("Trains a character-level transformer on text");
  add_options(app, settings);
  CLI11_PARSE(app, argc, argv);

  auto comm = gradsync::Communicator::create();
  return training::TextTraining(std::move(settings), comm).run() ? 0 : 1;
} catch (const c10::Error& error) {
  return std::fprintf(stderr, "char_transformer: %s\n", error.what_without_backtrace()), 1;
} catch (const std::exception& error) { return std::fprintf(stderr, "char_transformer: %s\n", error.what()), 1; }
