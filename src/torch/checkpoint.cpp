#include "gradsync/torch/checkpoint.hpp"

#include <array>
#include <cstring>

#include "gradsync/torch/distributed_data_parallel.hpp"
#include "torch/agreement.hpp"
#include "torch/checkpoint_file.hpp"
#include "torch/checkpoint_state.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

// Rank 0's text, on every rank.
std::string broadcast_text(Communicator& comm, std::string text) {
  std::array<std::uint64_t, 1> bytes = {text.size()};
  comm.broadcast(view(bytes), 0);
  text.resize(bytes[0]);
  comm.broadcast(View{text.data(), text.size(), DType::u8}, 0);
  return text;
}

std::string read_on_rank_0(const std::string& path, Communicator& comm) {
  std::string payload;
  Status status;
  if (comm.rank() == 0) {
    status = status_of(
        [&] {
          Result<std::string> file = read_checkpoint_file(path);
          throw_if_failed(file.status());
          payload = *std::move(file);
        },
        ErrorCode::unavailable, "read checkpoint");
  }
  agree(comm, status);
  return broadcast_text(comm, std::move(payload));
}

// The optimiser's state from before, put back unless kept.
class OptimizerBackup {
 public:
  explicit OptimizerBackup(::torch::optim::Optimizer& optimizer)
      : optimizer_(&optimizer),
        bytes_(bytes_of(optimizer)) {}
  ~OptimizerBackup() {
    if (optimizer_ != nullptr)
      static_cast<void>(status_of([&] { restore(*optimizer_, bytes_); }, ErrorCode::internal, "restore optimiser"));
  }
  OptimizerBackup(const OptimizerBackup&) = delete;
  OptimizerBackup& operator=(const OptimizerBackup&) = delete;
  void discard() { optimizer_ = nullptr; }

 private:
  ::torch::optim::Optimizer* optimizer_;
  std::string bytes_;
};

void overwrite_module(const ::torch::nn::Module& module, const SavedState& state) {
  std::size_t next = 0;
  const auto take = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().defined()) continue;
      Tensor fresh = ::torch::empty(item.value().sizes(), item.value().scalar_type());
      const std::string_view bytes = state.tensors[next++].bytes;
      if (!bytes.empty()) std::memcpy(fresh.data_ptr(), bytes.data(), bytes.size());
      overwrite(item.value(), fresh);
    }
  };
  take(module.named_parameters());
  take(module.named_buffers());
}

}  // namespace

void save_checkpoint(const std::string& path, const ::torch::nn::Module& module,
                     const ::torch::optim::Optimizer& optimizer, const CheckpointCounters& counters,
                     Communicator& comm) {
  Status status;
  if (comm.rank() == 0) {
    status = status_of(
        [&] {
          const std::vector<NamedTensor> tensors = state_of(module);
          throw_if_failed(write_checkpoint_file(path, encode(describe(tensors, optimizer, counters.numbers))));
        },
        ErrorCode::unavailable, "write checkpoint");
  }
  agree(comm, status);
}

CheckpointCounters load_checkpoint(const std::string& path, ::torch::nn::Module& module,
                                   ::torch::optim::Optimizer& optimizer, Communicator& comm) {
  const std::string payload = read_on_rank_0(path, comm);
  SavedState state;
  agree(comm, status_of(
                  [&] {
                    Result<SavedState> decoded = decode(payload, path);
                    throw_if_failed(decoded.status());
                    state = *std::move(decoded);
                    throw_if_failed(check_fits(state, path, state_of(module), optimizer));
                  },
                  ErrorCode::protocol, "read checkpoint"));
  OptimizerBackup backup(optimizer);
  agree(comm,
        status_of([&] { restore(optimizer, state.optimizer); }, ErrorCode::mismatch, "read checkpoint: optimiser"));
  backup.discard();
  overwrite_module(module, state);
  return {state.counters};
}

void save_checkpoint(const std::string& path, Replica& model, const ::torch::optim::Optimizer& optimizer,
                     const CheckpointCounters& counters) {
  model.synchronize();
  save_checkpoint(path, *model.module_ptr(), optimizer, counters, model.communicator());
}

CheckpointCounters load_checkpoint(const std::string& path, Replica& model, ::torch::optim::Optimizer& optimizer) {
  model.synchronize();
  return load_checkpoint(path, *model.module_ptr(), optimizer, model.communicator());
}

}  // namespace gradsync::torch
