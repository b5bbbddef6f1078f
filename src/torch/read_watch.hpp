// Tells which tensors the operations of a thread are about to take.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

namespace gradsync::torch {

// While watching, `seen` is called with every tensor that an operation of this thread takes, before it runs; not while
// an earlier call of it runs. What it throws would be lost in libtorch: it must not throw.
class ReadWatch {
 public:
  using Seen = std::function<void(const ::torch::Tensor&)>;
  explicit ReadWatch(Seen seen);
  ~ReadWatch();
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;
  void start();  // on this thread; again: nothing
  void stop();   // on the thread that started it, else it only falls silent

  struct Slot;

 private:
  Seen seen_;
  std::shared_ptr<Slot> slot_;
};

}  // namespace gradsync::torch
