// What a training run leaves behind for the report: one JSON object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace training {

struct Evaluation {
  std::uint64_t step = 0;  // after so many steps
  double accuracy = 0;     // 0 to 1
  double loss = 0;         // mean over the samples
};

// Sums over the measured steps (all but the first ones) of this rank, then means over the ranks.
struct Communication {
  double under_way_s = 0;  // at least one bucket was
  double exposed_s = 0;    // of that, what the step waited for
  double hidden_share() const { return under_way_s > 0 ? 1 - exposed_s / under_way_s : 0; }
};

struct RunRecord {
  std::string program;
  bool reference = false;  // plain libtorch in one process
  std::uint64_t workers = 1, batch_per_worker = 0, threads = 1, epochs = 0, seed = 0;
  double learning_rate = 0;
  std::string overlap;
  std::vector<double> losses;  // of each step, mean over the samples of all ranks
  std::vector<Evaluation> evaluations;
  double images_per_second = 0;  // training steps only, without the first ones and evaluation
  double step_s_median = 0;
  double seconds = 0;  // everything
  std::uint64_t gradient_bytes = 0, buckets = 0, replans = 0;
  double message_latency_s = 0, seconds_per_byte = 0;  // what the plan of the buckets goes by
  Communication communication;
  std::vector<std::string> fingerprints;  // of each rank's parameters and buffers at the end
};

// Throws std::runtime_error naming the file and the cause.
void write_record(const RunRecord& record, const std::filesystem::path& file);

}  // namespace training
