// The state of a training run in one file that any world size resumes from.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>

#include "gradsync/communicator.hpp"

namespace gradsync::torch {

struct CheckpointCounters {  // what else is worth keeping: epoch, step, …
  std::map<std::string, std::int64_t> numbers;
};

// Collective. Rank 0 writes module, optimiser and counters to `path`, atomically (a temporary file beside it, fsync, rename):
// the file is whole, old or new, at any moment. All ranks return when it is in place; unavailable on all of them, naming
// path and cause, if it is not.
void save_checkpoint(const std::string& path, const ::torch::nn::Module& module, const ::torch::optim::Optimizer& optimizer,
                     const CheckpointCounters& counters, Communicator& comm);
// Collective. Rank 0 reads and everyone gets the same. Errors on every rank: unavailable (no such file), protocol (cut short, damaged:
// says how many bytes are there and how many expected), mismatch (of another model: names the first parameter or buffer that
// differs, with both shapes). Nothing is changed then.
CheckpointCounters load_checkpoint(const std::string& path, ::torch::nn::Module& module, ::torch::optim::Optimizer& optimizer,
                                   Communicator& comm);

}  // namespace gradsync::torch
