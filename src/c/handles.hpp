// Handles that can be checked at any time: a handle is a number in the shape of a pointer, looked up in a table and never
// followed. Numbers are not used twice, so a freed handle is known as freed for as long as the process lives.
#pragma once

#include <cstdint>
#include <memory>

#include "c/guard.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync::c {

enum class Kind : std::uint8_t { communicator = 1, work = 2, memory = 3 };

// Each throws Refusal for what is not there: closed or invalid_argument. Any thread.
std::uintptr_t add_handle(Kind kind, std::shared_ptr<void> object);
std::shared_ptr<void> find_handle(Kind kind, std::uintptr_t handle);
std::shared_ptr<void> remove_handle(Kind kind, std::uintptr_t handle);

template <class Handle>
struct Behind;
template <>
struct Behind<gradsync_comm> {
  using Object = Communicator;
  static constexpr Kind kind = Kind::communicator;
};
template <>
struct Behind<gradsync_work> {
  using Object = Work;
  static constexpr Kind kind = Kind::work;
};
template <>
struct Behind<gradsync_memory> {
  using Object = Memory;
  static constexpr Kind kind = Kind::memory;
};

template <class Handle>
Handle* hand_out(typename Behind<Handle>::Object object) {
  auto shared = std::make_shared<typename Behind<Handle>::Object>(std::move(object));
  return reinterpret_cast<Handle*>(add_handle(Behind<Handle>::kind, std::move(shared)));
}
// Keeps the object alive for a call under way.
template <class Handle>
std::shared_ptr<typename Behind<Handle>::Object> behind(Handle* handle) {
  return std::static_pointer_cast<typename Behind<Handle>::Object>(
      find_handle(Behind<Handle>::kind, reinterpret_cast<std::uintptr_t>(handle)));
}
template <class Handle>
std::shared_ptr<typename Behind<Handle>::Object> take_back(Handle* handle) {
  return std::static_pointer_cast<typename Behind<Handle>::Object>(
      remove_handle(Behind<Handle>::kind, reinterpret_cast<std::uintptr_t>(handle)));
}

}  // namespace gradsync::c
