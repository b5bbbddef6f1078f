// Memory that other processes of the host can map.
#pragma once

#include "base/status.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync {

// Zeroed, page-aligned, reserved before use (no SIGBUS later). out_of_memory names the bytes and the cause.
Result<Memory> allocate_shared(std::size_t bytes);

}  // namespace gradsync
