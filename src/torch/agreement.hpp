// One outcome on all ranks, where one of them may have failed by itself.
#pragma once

#include <functional>

#include "gradsync/communicator.hpp"

namespace gradsync::torch {

// Collective. If any rank comes with a failure, every rank throws that of the lowest such rank.
void agree(Communicator& comm, const Status& mine);

// What `body` throws, as a status: gradsync::Error as it is, anything else as `otherwise` after `what`.
Status status_of(const std::function<void()>& body, ErrorCode otherwise, const char* what);

}  // namespace gradsync::torch
