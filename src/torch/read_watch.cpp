#include "torch/read_watch.hpp"

#include <ATen/record_function.h>

#include <algorithm>
#include <vector>

namespace gradsync::torch {

struct ReadWatch::Slot {
  const Seen* seen = nullptr;  // null: fallen silent
  bool busy = false;
};

namespace {

// libtorch calls a plain function, by thread: what it is to do must be found from there.
struct Watches {
  std::vector<std::shared_ptr<ReadWatch::Slot>> slots;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
};
Watches& watches_of_this_thread() {
  thread_local Watches watches;
  return watches;
}

void tell(ReadWatch::Slot& slot, const ::torch::Tensor& tensor) {
  if (slot.seen == nullptr || slot.busy || !tensor.defined()) return;
  slot.busy = true;
  (*slot.seen)(tensor);
  slot.busy = false;
}

void tell_all(const ::torch::Tensor& tensor) {
  Watches& watches = watches_of_this_thread();
  for (std::size_t i = 0; i < watches.slots.size(); ++i) tell(*watches.slots[i], tensor);
}

std::unique_ptr<at::ObserverContext> on_operation(const at::RecordFunction& operation) {
  for (const c10::IValue& input : operation.inputs()) {
    if (input.isTensor()) {
      tell_all(input.toTensor());
    } else if (input.isTensorList()) {
      for (const ::torch::Tensor& tensor : input.toTensorVector()) tell_all(tensor);
    } else if (input.isList()) {  // of optional tensors
      for (const c10::IValue& item : input.toListRef())
        if (item.isTensor()) tell_all(item.toTensor());
    }
  }
  return nullptr;
}

}  // namespace

ReadWatch::ReadWatch(Seen seen) : seen_(std::move(seen)) {}
ReadWatch::~ReadWatch() { stop(); }

void ReadWatch::start() {
  if (slot_) return;
  slot_ = std::make_shared<Slot>();
  slot_->seen = &seen_;
  Watches& watches = watches_of_this_thread();
  if (watches.slots.empty())
    watches.handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_operation).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  watches.slots.push_back(slot_);
}

void ReadWatch::stop() {
  if (!slot_) return;
  slot_->seen = nullptr;
  Watches& watches = watches_of_this_thread();
  const bool here = std::erase(watches.slots, slot_) > 0;
  if (here && watches.slots.empty()) at::removeCallback(watches.handle);
  slot_.reset();
}

}  // namespace gradsync::torch
