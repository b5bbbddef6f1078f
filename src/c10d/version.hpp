// What differs between the versions of PyTorch that one source serves: the class that a backend implements is
// c10d::ProcessGroup in 1.13 and c10d::Backend in 2.x, which has grown ever since.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#define GRADSYNC_TORCH_SINCE(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if GRADSYNC_TORCH_SINCE(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace gradsync::pytorch {

#if GRADSYNC_TORCH_SINCE(2, 0)
using BackendBase = ::c10d::Backend;
#else
using BackendBase = ::c10d::ProcessGroup;
#endif

}  // namespace gradsync::pytorch
