// What only 2.x has: coalesced forms, and what came after them.
#include <fmt/format.h>

#include <algorithm>

#include "c10d/call.hpp"
#include "c10d/overlap.hpp"

namespace gradsync::pytorch {

#if GRADSYNC_TORCH_SINCE(2, 0)
namespace {

using Tensors = ProcessGroupGradsync::Tensors;

void check_pairs(const char* name, const Tensors& outputs, const Tensors& inputs) {
  if (outputs.size() == inputs.size() && !inputs.empty()) return;
  throw Error(Status{ErrorCode::invalid_argument, -1,
                     fmt::format("gradsync: {}: {} outputs and {} inputs, expected as many of both and at least one",
                                 name, outputs.size(), inputs.size())});
}

// Of pairs whose sizes do not fit, which are refused when their turn comes, there is none.
Tensors blocks_of(const Tensors& wholes, int rank, const Tensors& parts) {
  Tensors blocks(wholes.size());
  for (std::size_t i = 0; i < wholes.size(); ++i)
    if ((rank + 1) * parts[i].numel() <= wholes[i].numel()) blocks[i] = block_of(wholes[i], rank, parts[i]);
  return blocks;
}

template <class Body>
void spoken_by(const Session& session, const Body& body) {
  try {
    const AsMemory guard;
    body();
  } catch (const Error& error) {
    throw Error(Status{error.code(), error.peer(), session.prefix() + ": " + error.what()});
  }
}

}  // namespace

// Each is a call of its own, begun in the given order; they overlap.
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) {
  const char* name = "all_gather_into_tensor_coalesced";
  check_pairs(name, outputs, inputs);
  spoken_by(*session(), [&] { check_apart(name, outputs, inputs, blocks_of(outputs, getRank(), inputs)); });
  return together([&](std::size_t i) { return _allgather_base(outputs[i], inputs[i], options); }, outputs);
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::ReduceScatterOptions& options) {
  const char* name = "reduce_scatter_tensor_coalesced";
  check_pairs(name, outputs, inputs);
  const Tensors places = blocks_of(inputs, getRank(), outputs);
  Tensors elsewhere;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!in_place(outputs[i], places[i])) elsewhere.push_back(outputs[i]);
  spoken_by(*session(), [&] { check_apart(name, outputs), check_apart(name, elsewhere, inputs); });
  return together([&](std::size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); }, outputs);
}

template <class Begin>
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::together(const Begin& begin, const Tensors& outputs) {
  Plan plan;
  plan.call = {::c10d::OpType::COALESCED, "coalesced calls", "gradsync:coalesced"};
  plan.outputs = {outputs};
  for (std::size_t i = 0; i < outputs.size(); ++i)
    plan.calls.push_back(c10::static_intrusive_pointer_cast<GroupWork>(begin(i)));
  return session()->keep(std::move(plan));
}

void ProcessGroupGradsync::startCoalescing() {
  session()->check_process();
  const std::lock_guard lock(mutex_);
  coalescing_ = true;
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::endCoalescing() {
  Plan plan;
  plan.call = {::c10d::OpType::COALESCED, "coalesced calls", "gradsync:coalesced"};
  {
    const std::lock_guard lock(mutex_);
    coalescing_ = false;
    plan.calls = std::move(coalesced_);
    coalesced_.clear();
  }
  // Receives among them may end in any order.
  const bool ordered = std::all_of(plan.calls.begin(), plan.calls.end(),
                                   [](const auto& work) { return work->order() == Order::collective; });
  plan.order = ordered ? Order::collective : Order::point_to_point;
  return session()->keep(std::move(plan));
}
#endif

#ifdef C10D_BACKEND_HAS_RECONFIGURE
namespace {

// Position of each handle is its rank; where the caller leaves the order open it is that of the handles' text.
std::vector<::c10d::ReconfigureHandle> ordered(const ::c10d::ReconfigureOptions& options) {
  if (const auto* list = std::get_if<std::vector<::c10d::ReconfigureHandle>>(&options.handles)) return *list;
  const auto& set = std::get<std::unordered_set<::c10d::ReconfigureHandle>>(options.handles);
  std::vector<::c10d::ReconfigureHandle> handles(set.begin(), set.end());
  std::sort(handles.begin(), handles.end());
  return handles;
}

}  // namespace

// The members meet in the store under the uuid. What was under way in the group before ends with `closed`.
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::reconfigure(const ::c10d::ReconfigureOptions& options) {
  const std::vector<::c10d::ReconfigureHandle> handles = ordered(options);
  const auto me = std::find(handles.begin(), handles.end(), handle_);
  if (me == handles.end())
    throw Error(Status{
        ErrorCode::invalid_argument, -1,
        fmt::format("gradsync: reconfigure: none of the {} handles is this process's, {}", handles.size(), handle_)});
  shutdown();
  Session::Setup setup{store_, static_cast<int>(me - handles.begin()), static_cast<int>(handles.size()), timeout_};
  setup.place = fmt::format("reconfigured/{}/", options.uuid);
  setup.start_timeout = options.timeout.value_or(timeout_);
  rank_ = setup.rank;
  size_ = setup.size;
  auto session = std::make_shared<Session>(setup);
  {
    const std::lock_guard lock(mutex_);
    session_ = session;
  }
  monitored_barriers_ = 0;
  calls_ = 0;
  give_hooks(*session);
  Plan plan;
  plan.call = {::c10d::OpType::UNKNOWN, "reconfigure", "gradsync:reconfigure"};
  return session->keep(std::move(plan));
}
#endif

#ifdef C10D_BACKEND_HAS_HOOKS
void ProcessGroupGradsync::registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) {
  {
    const std::lock_guard lock(mutex_);
    abort_hooks_[id] = std::move(hook);
  }
  if (const auto session = session_if_any()) give_hooks(*session);
}

void ProcessGroupGradsync::unregisterAbortHook(std::int64_t id) {
  {
    const std::lock_guard lock(mutex_);
    abort_hooks_.erase(id);
  }
  if (const auto session = session_if_any()) give_hooks(*session);
}

void ProcessGroupGradsync::give_hooks(Session& session) {
  std::vector<std::function<void()>> hooks;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, hook] : abort_hooks_) hooks.push_back(hook);
  session.set_failure_hooks(std::move(hooks));
}

::c10d::ErrorType ProcessGroupGradsync::getError() {
  switch (session()->comm_status().code) {
    case ErrorCode::ok: return ::c10d::ErrorType::SUCCESS;
    case ErrorCode::timeout: return ::c10d::ErrorType::TIMEOUT;
    case ErrorCode::peer_lost:
    case ErrorCode::aborted: return ::c10d::ErrorType::REMOTE_ERROR;
    default: return ::c10d::ErrorType::COMM_ERROR;
  }
}
#endif

}  // namespace gradsync::pytorch
