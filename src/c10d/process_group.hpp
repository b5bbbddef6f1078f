// What torch.distributed.init_process_group("gradsync") makes: a process group of PyTorch over one Communicator.
//
// Calls check their tensors, find memory for the engine (staging.hpp), start and return a work (work.hpp). Whatever is refused,
// is refused before a byte moves and leaves the group usable; after any other failure the group has failed, on every rank.
// All errors are gradsync::Error, in Python RuntimeError.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "c10d/session.hpp"

namespace gradsync::pytorch {

// Some releases of 2.x have a virtual `split` of another signature, which ours would not override but hide.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"

class ProcessGroupGradsync final : public BackendBase {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPointer = c10::intrusive_ptr<::c10d::Work>;
  using StorePointer = c10::intrusive_ptr<::c10d::Store>;
  static constexpr const char* kName = "gradsync";

  // Blocks until all ranks are there. `members`: ranks of the default group, if known; those who meet must have the same. `deferred`:
  // only notes what it needs, for reconfigure().
  ProcessGroupGradsync(StorePointer store, int rank, int size, std::chrono::milliseconds timeout, bool deferred = false,
                       const std::vector<int>& members = {});
  ~ProcessGroupGradsync() override;

  // When the last reference goes; the destructor only comes when the last weak one has gone, too.
  void release_resources() override;

  const std::string getBackendName() const override { return kName; }

  WorkPointer broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const ::c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input, const ::c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const ::c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const ::c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const ::c10d::ScatterOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const ::c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const ::c10d::AllToAllOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const ::c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const ::c10d::BarrierOptions& options) override;
  // Through the store, so that a rank that is missing can be named and does not end the group.
  void monitoredBarrier(const ::c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // Sequence numbers begin at 0 on every rank: nothing needs to be agreed on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }

#if GRADSYNC_TORCH_SINCE(2, 0)
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ::c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ::c10d::ReduceScatterOptions& options) override;
  void startCoalescing() override;
  WorkPointer endCoalescing() override;
#endif
#if GRADSYNC_TORCH_SINCE(2, 1)
  WorkPointer allreduce_sparse(Tensors& tensors, const ::c10d::AllreduceOptions& options) override;
#endif

  // Virtual in the base of later releases, where these override; here they are called from Python.
  void abort() { abort_because("abort() was called"); }
  void shutdown();
  void setTimeout(std::chrono::milliseconds timeout);
  at::Tensor allocateTensor(long size, at::TensorOptions options);
  bool supportsTensorAlloc(c10::DeviceIndex) { return true; }
  bool supportsSplitting() const;
  c10::intrusive_ptr<Options> getBackendOptions();
  // A group of these ranks of this group, in the given order, or null on a rank that is not among them.
  c10::intrusive_ptr<BackendBase> split(const StorePointer& store, const std::vector<int>& ranks,
                                        const c10::intrusive_ptr<Options>& options);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  bool isInitialized() override { return session_if_any() != nullptr; }
  ::c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  WorkPointer reconfigure(const ::c10d::ReconfigureOptions& options) override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(std::int64_t id, ::c10d::AbortHook hook) override;
  void unregisterAbortHook(std::int64_t id) override;
  bool supportsAbortHooks() const { return true; }
  ::c10d::ErrorType getError() override;
#endif

  void abort_because(const std::string& why);
  std::string untold_mismatch() const;  // see Session
  // Uninitialised memory that the ranks of the host read in place. `type` has a fixed size.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type);
  std::string describe_rank(int rank);

 private:
  using Plan = GroupWork::Plan;
  struct Started {  // what the body of a call is given
    Communicator& comm;
    CallOptions options;
    Plan& plan;
    Session& session;
  };

  std::shared_ptr<Session> session_if_any() const;
  std::shared_ptr<Session> session() const;
  template <class Body>
  WorkPointer call(const CallName& name, std::chrono::milliseconds timeout, const Body& body);
  WorkPointer collected(WorkPointer work);
  template <class Begin>
  WorkPointer together(const Begin& begin, const Tensors& outputs);
  void give_hooks(Session& session);
  WorkPointer sparse_allreduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options);
  void check_root(const char* name, std::int64_t root) const;
  void check_peer(const char* name, int peer) const;

  const StorePointer store_;
  const std::chrono::milliseconds timeout_;
  const std::string handle_;  // of this process, for reconfigure()
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Session> session_;
  std::vector<c10::intrusive_ptr<GroupWork>> coalesced_;
  bool coalescing_ = false;
  std::map<std::int64_t, std::function<void()>> abort_hooks_;
  std::atomic<std::uint64_t> calls_{0};  // collectives
  std::atomic<std::uint64_t> monitored_barriers_{0};
};

#pragma GCC diagnostic pop

}  // namespace gradsync::pytorch
