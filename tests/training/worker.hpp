// What this program does as a worker process of its own tests.
#pragma once

#include <string_view>

namespace gradsync::training {

int worker(std::string_view what);

}  // namespace gradsync::training
