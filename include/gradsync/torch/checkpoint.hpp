// The state of a training run in one file that any world size resumes from.
//
//   gradsync::torch::save_checkpoint("run.checkpoint", model, optimizer, {{{"epoch", epoch}}});
//   …
//   auto counters = gradsync::torch::load_checkpoint("run.checkpoint", model, optimizer);
//   epoch = counters.numbers.at("epoch");
//
// The file: 32 bytes of header (magic, version, length and CRC-64 of the rest), then counters, every parameter and
// buffer by name, and what the optimiser's own save() writes. Little-endian.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>

#include "gradsync/communicator.hpp"

namespace gradsync::torch {

class Replica;

struct CheckpointCounters {  // what else is worth keeping: epoch, step, …
  std::map<std::string, std::int64_t> numbers;
};

// Collective. Rank 0 writes module, optimiser and counters to `path`, atomically (a temporary file `path`.partial,
// fsync, rename, fsync of the folder): the file is whole, old or new, at any moment. All ranks return when it is in
// place; unavailable on all of them, naming path and cause, if it is not.
void save_checkpoint(const std::string& path, const ::torch::nn::Module& module,
                     const ::torch::optim::Optimizer& optimizer, const CheckpointCounters& counters,
                     Communicator& comm);
// The same after model.synchronize().
void save_checkpoint(const std::string& path, Replica& model, const ::torch::optim::Optimizer& optimizer,
                     const CheckpointCounters& counters = {});

// Collective. Rank 0 reads and everyone gets the same. Tensors and optimiser are those that exist, only their values
// change. Errors on every rank: unavailable (no such file), protocol (cut short, damaged: says how many bytes are
// there and how many expected), mismatch (of another model: names the first parameter or buffer that differs, with
// both shapes; or of another optimiser). Nothing is changed then.
CheckpointCounters load_checkpoint(const std::string& path, ::torch::nn::Module& module,
                                   ::torch::optim::Optimizer& optimizer, Communicator& comm);
CheckpointCounters load_checkpoint(const std::string& path, Replica& model, ::torch::optim::Optimizer& optimizer);

}  // namespace gradsync::torch
