// Python's lock, where a destructor may run with it or without.
#pragma once

#include <functional>

namespace gradsync::pytorch {

// Runs what waits for threads that may want the interpreter's lock.
void without_interpreter_lock(const std::function<void()>& body);

}  // namespace gradsync::pytorch
