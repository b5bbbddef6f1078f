// Two processes that look after each other, so that a launcher that is killed outright leaves nothing behind.
#pragma once

#include <functional>

namespace gradsync::cli {

// Runs `body` in a child process and returns its exit code. Signals that come here are passed to the child. If the child is
// killed, everything that descends from it is ended here; if this process is killed, the descriptor that `body` gets (a
// pipe) ends, and `body` must end what it started. To be called while the process has one thread.
int guarded(const std::function<int(int lifeline)>& body);

}  // namespace gradsync::cli
