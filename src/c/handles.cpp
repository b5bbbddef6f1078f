#include "c/handles.hpp"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace gradsync::c {
namespace {

constexpr unsigned kKindBits = 2;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::communicator: return "communicator";
    case Kind::work: return "work";
    case Kind::memory: return "memory";
  }
  return "object";
}

class HandleTable {
 public:
  // In a forked child: goes on counting where the parent's table, never to be touched again, has stopped.
  explicit HandleTable(const HandleTable* parent)
      : parent_(parent),
        first_(parent == nullptr ? 1 : parent->next_.load()),
        next_(first_) {}

  std::uintptr_t add(Kind kind, std::shared_ptr<void> object) {
    std::lock_guard lock(mutex_);
    const std::uintptr_t handle = next_.load() << kKindBits | static_cast<std::uintptr_t>(kind);
    objects_.emplace(handle, std::move(object));
    next_.fetch_add(1);
    return handle;
  }
  std::shared_ptr<void> find(Kind kind, std::uintptr_t handle, bool remove) {
    std::lock_guard lock(mutex_);
    const auto at = objects_.find(handle);
    if (at == objects_.end() || kind_of(handle) != static_cast<std::uintptr_t>(kind)) refuse_handle(kind, handle);
    if (!remove) return at->second;
    std::shared_ptr<void> object = std::move(at->second);
    objects_.erase(at);
    return object;
  }

 private:
  static std::uintptr_t kind_of(std::uintptr_t handle) { return handle & ((1u << kKindBits) - 1); }

  [[noreturn]] void refuse_handle(Kind kind, std::uintptr_t handle) const {
    if (handle == 0) refuse(ErrorCode::invalid_argument, "the {} is null", name_of(kind));
    const std::uintptr_t number = handle >> kKindBits;
    if (number == 0 || number >= next_.load() || kind_of(handle) == 0)
      refuse(ErrorCode::invalid_argument, "{:#x} is not a handle of gradsync, expected a {}", handle, name_of(kind));
    if (kind_of(handle) != static_cast<std::uintptr_t>(kind))
      refuse(ErrorCode::invalid_argument, "the handle is of a {}, expected a {}",
             name_of(static_cast<Kind>(kind_of(handle))), name_of(kind));
    if (number < first_)
      refuse(ErrorCode::closed, "the {} is of the parent process; a forked child joins a group of its own",
             name_of(kind));
    refuse(ErrorCode::closed, "the {} was {} before", name_of(kind),
           kind == Kind::communicator ? "destroyed" : "freed");
  }

  // Kept reachable: what it holds is the parent's, and ends with this process.
  [[maybe_unused]] const HandleTable* const parent_;
  const std::uintptr_t first_;
  std::atomic<std::uintptr_t> next_;
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, std::shared_ptr<void>> objects_;
};

std::atomic<HandleTable*> current{nullptr};

// A global, which this library has nowhere else: C has no object that could hold the table of its handles. It is never
// destroyed, since threads may be inside calls while the process exits.
HandleTable& table() {
  static const int registered = [] {
    current = new HandleTable(nullptr);
    return ::pthread_atfork(nullptr, nullptr, [] { current = new HandleTable(current.load()); });
  }();
  if (registered != 0) refuse(ErrorCode::out_of_memory, "no memory for the handler of forks");
  return *current;
}

}  // namespace

std::uintptr_t add_handle(Kind kind, std::shared_ptr<void> object) { return table().add(kind, std::move(object)); }
std::shared_ptr<void> find_handle(Kind kind, std::uintptr_t handle) { return table().find(kind, handle, false); }
std::shared_ptr<void> remove_handle(Kind kind, std::uintptr_t handle) { return table().find(kind, handle, true); }

}  // namespace gradsync::c
