#include "c10d/process_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <unordered_set>

#include "c10d/call.hpp"
#include "c10d/interpreter.hpp"

namespace gradsync::pytorch {
namespace {

// Whether the base asks for a split as ours offers it.
template <class Base>
constexpr bool can_split = requires(Base& base, const c10::intrusive_ptr<::c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<typename Base::Options>& options) {
  base.split(store, ranks, options);
};

// All of a large group would be too long to read: a digest stands for the rest.
std::string named_group(const std::vector<int>& members) {
  const std::size_t shown = std::min<std::size_t>(members.size(), 32);
  std::uint64_t digest = 0;
  for (const int member : members) digest = (digest ^ static_cast<std::uint64_t>(member)) * 0x9e3779b97f4a7c15u;
  std::string text = fmt::format("the group of ranks [{}", fmt::join(members.begin(), members.begin() + shown, ", "));
  return text + (shown == members.size() ? "]" : fmt::format(", …], {} in all, digest {:x}", members.size(), digest));
}

std::string new_handle() {
  std::random_device random;
  return fmt::format("gradsync-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

}  // namespace

ProcessGroupGradsync::ProcessGroupGradsync(StorePointer store, int rank, int size, std::chrono::milliseconds timeout,
                                           bool deferred, const std::vector<int>& members)
    : BackendBase(rank, size),
      store_(std::move(store)),
      timeout_(timeout),
      handle_(new_handle()) {
  init();
  if (deferred) return;
  Session::Setup setup{store_, rank, size, timeout, timeout};
  if (!members.empty()) setup.agreement = named_group(members);
  session_ = std::make_shared<Session>(std::move(setup));
}

ProcessGroupGradsync::~ProcessGroupGradsync() { ProcessGroupGradsync::release_resources(); }

// Works that somebody still holds end here, too.
void ProcessGroupGradsync::release_resources() {
  without_interpreter_lock([this] { shutdown(); });
}

std::shared_ptr<Session> ProcessGroupGradsync::session_if_any() const {
  const std::lock_guard lock(mutex_);
  return session_;
}

std::shared_ptr<Session> ProcessGroupGradsync::session() const {
  if (std::shared_ptr<Session> session = session_if_any()) return session;
  throw Error(Status{ErrorCode::closed, -1, "gradsync: the process group has no members yet: call reconfigure()"});
}

// Between startCoalescing and endCoalescing.
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::collected(WorkPointer work) {
  const std::lock_guard lock(mutex_);
  if (coalescing_) coalesced_.push_back(c10::static_intrusive_pointer_cast<GroupWork>(work));
  return work;
}

void ProcessGroupGradsync::check_root(const char* name, std::int64_t root) const {
  if (root < 0 || root >= getSize())
    throw Error(Status{ErrorCode::invalid_argument, -1,
                       fmt::format("{}: root is {}, expected 0 to {}", name, root, getSize() - 1)});
}

void ProcessGroupGradsync::check_peer(const char* name, int peer) const {
  if (peer < 0 || peer >= getSize())
    throw Error(Status{ErrorCode::invalid_argument, -1,
                       fmt::format("{}: the peer is {}, expected 0 to {}", name, peer, getSize() - 1)});
}

void ProcessGroupGradsync::abort_because(const std::string& why) {
  if (const std::shared_ptr<Session> session = session_if_any()) {
    session->failing();
    session->abort(why);
  }
}

void ProcessGroupGradsync::shutdown() {
  if (const std::shared_ptr<Session> session = session_if_any()) session->shutdown();
}

std::string ProcessGroupGradsync::untold_mismatch() const {
  const std::shared_ptr<Session> session = session_if_any();
  return session ? session->untold_mismatch() : std::string();
}

void ProcessGroupGradsync::setTimeout(std::chrono::milliseconds timeout) {
  if (timeout.count() <= 0)
    throw Error(Status{ErrorCode::invalid_argument, -1,
                       fmt::format("the timeout is {} ms, expected above 0", timeout.count())});
  session()->set_timeout(timeout);
}

std::string ProcessGroupGradsync::describe_rank(int rank) { return session()->comm().describe(rank); }

at::Tensor ProcessGroupGradsync::empty(at::IntArrayRef sizes, at::ScalarType type) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements))
      throw Error(Status{ErrorCode::invalid_argument, -1,
                         fmt::format("empty: the size [{}] cannot be", fmt::join(sizes, ", "))});
  }
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(elements), c10::elementSize(type), &bytes))
    throw Error(Status{ErrorCode::out_of_memory, -1, fmt::format("empty: {} elements of {}", elements, name_of(type))});
  const auto options = at::TensorOptions().dtype(type).device(at::kCPU);
  if (bytes == 0) return at::empty(sizes, options);
  Memory memory = session()->comm().allocate(bytes);
  void* const data = memory.data();
  return at::from_blob(
      data, sizes, [memory](void*) {}, options);
}

at::Tensor ProcessGroupGradsync::allocateTensor(long size, at::TensorOptions options) {
  return empty({size}, c10::typeMetaToScalarType(options.dtype()));
}

c10::intrusive_ptr<BackendBase::Options> ProcessGroupGradsync::getBackendOptions() {
  return c10::make_intrusive<Options>(kName, session()->timeout());
}

bool ProcessGroupGradsync::supportsSplitting() const { return can_split<BackendBase>; }

c10::intrusive_ptr<BackendBase> ProcessGroupGradsync::split(const StorePointer& store, const std::vector<int>& ranks,
                                                            const c10::intrusive_ptr<Options>& options) {
  for (const int rank : ranks) check_peer("split", rank);
  if (std::unordered_set<int>(ranks.begin(), ranks.end()).size() != ranks.size())
    throw Error(Status{ErrorCode::invalid_argument, -1,
                       fmt::format("split: a rank is there twice: {}", fmt::join(ranks, ", "))});
  session()->check_process();
  const auto me = std::find(ranks.begin(), ranks.end(), getRank());
  if (me == ranks.end()) return {};
  const auto timeout = options && options->timeout.count() > 0 ? options->timeout : session()->timeout();
  return c10::make_intrusive<ProcessGroupGradsync>(store ? store : store_, static_cast<int>(me - ranks.begin()),
                                                   static_cast<int>(ranks.size()), timeout);
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::barrier(const ::c10d::BarrierOptions& options) {
  return call({::c10d::OpType::BARRIER, "barrier", "gradsync:barrier"}, options.timeout,
              [](Started& on) { on.plan.parts.push_back(on.comm.barrier_async(on.options)); });
}

}  // namespace gradsync::pytorch
