#include "c10d/interpreter.hpp"

#include <torch/csrc/utils/pybind.h>

namespace gradsync::pytorch {

void without_interpreter_lock(const std::function<void()>& body) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return body();
  const py::gil_scoped_release release;
  body();
}

}  // namespace gradsync::pytorch
