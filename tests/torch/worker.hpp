#pragma once

#include <string>

namespace gradsync_test {

// One process of a training job; its exit code.
int worker(const std::string& name);

}  // namespace gradsync_test
