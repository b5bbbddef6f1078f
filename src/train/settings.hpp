// That the options and parameters of a GradientSync can be right, and that all ranks ask for the same.
#pragma once

#include <span>

#include "base/status.hpp"
#include "gradsync/gradient_sync.hpp"

namespace gradsync {

Status check_settings(std::span<const Parameter> parameters, const GradientSyncOptions& options);

// Collective on `control`. Throws on every rank: what check_settings says of any rank, and mismatch where an option differs.
void agree_on_settings(Communicator& control, std::span<const Parameter> parameters,
                       const GradientSyncOptions& options);

}  // namespace gradsync
