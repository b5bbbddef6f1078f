// The Python module gradsync.torch._c10d. What blocks releases the interpreter's lock.
#include <torch/csrc/utils/pybind.h>
// after Python's own header, which the one above includes
#include <pybind11/chrono.h>
#include <torch/csrc/Dtype.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "c10d/process_group.hpp"

namespace gradsync::pytorch {
namespace {

using Group = ProcessGroupGradsync;
using GroupPointer = c10::intrusive_ptr<Group>;

// The groups of a process, so that they can be ended while the interpreter still runs: no thread of ours may want its lock later.
class Groups {
 public:
  GroupPointer create(const c10::intrusive_ptr<::c10d::Store>& store, int rank, int size,
                      std::chrono::milliseconds timeout, bool deferred, const std::vector<int>& members) {
    auto group = c10::make_intrusive<Group>(store, rank, size, timeout, deferred, members);
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [](const auto& known) { return known.expired(); });
    groups_.emplace_back(group);
    return group;
  }

  // What of mismatches nobody has been told, of all groups.
  std::vector<std::string> shutdown() {
    std::vector<c10::weak_intrusive_ptr<Group>> groups;
    std::vector<std::string> untold;
    {
      const std::lock_guard lock(mutex_);
      groups.swap(groups_);
    }
    for (const auto& known : groups)
      if (const GroupPointer group = known.lock()) {
        group->shutdown();
        if (std::string text = group->untold_mismatch(); !text.empty()) untold.push_back(std::move(text));
      }
    return untold;
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<Group>> groups_;
};

at::ScalarType type_named_by(const py::object& dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("dtype: expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

void define_group(py::module_& module) {
  const auto no_lock = py::call_guard<py::gil_scoped_release>();
  py::class_<Group, GroupPointer, BackendBase>(module, "ProcessGroupGradsync")
      .def("_shutdown", &Group::shutdown, no_lock, "End the group on this rank: later calls raise.")
      .def("_untold_mismatch", &Group::untold_mismatch, no_lock,
           "After the end: that ranks called different things, if no call has said so; else empty.")
      .def("_abort", &Group::abort_because, py::arg("why"), no_lock,
           "End every call under way and every later one, here and on the other ranks.")
      .def("_set_timeout", &Group::setTimeout, py::arg("timeout"), no_lock)
      .def(
          "_monitored_barrier",
          [](Group& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
            ::c10d::BarrierOptions options;
            options.timeout = timeout;
            group.monitoredBarrier(options, wait_all_ranks);
          },
          py::arg("timeout"), py::arg("wait_all_ranks"), no_lock)
      .def("describe", &Group::describe_rank, py::arg("rank"), no_lock, "Rank, host and address, as in error messages.")
      .def(
          "empty",
          [](Group& group, const std::vector<std::int64_t>& sizes, const py::object& dtype) {
            const at::ScalarType type = type_named_by(dtype);
            const py::gil_scoped_release release;
            return group.empty(sizes, type);
          },
          py::arg("sizes"), py::arg("dtype"), "A tensor in memory that the other ranks of the host read in place.");
}

void define_groups(py::module_& module) {
  const auto no_lock = py::call_guard<py::gil_scoped_release>();
  py::class_<Groups, std::shared_ptr<Groups>>(module, "Groups")
      .def(py::init<>())
      .def("create", &Groups::create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("deferred") = false, py::arg("members") = std::vector<int>(), no_lock)
      .def("shutdown", &Groups::shutdown, no_lock);
}

}  // namespace
}  // namespace gradsync::pytorch

PYBIND11_MODULE(_c10d, module) {
  py::module_::import("torch.distributed");  // registers the base classes
  gradsync::pytorch::define_group(module);
  gradsync::pytorch::define_groups(module);
  module.attr("torch_version") = TORCH_VERSION;
}
