// Which process made something.
#pragma once

#include <unistd.h>

namespace gradsync {

// Remembers the process in which it was made. A forked child has copies of all objects and shares their sockets with its
// parent: what it destroys it may close, but must not speak or wait for. One system call a question.
class MakingProcess {
 public:
  bool is_this() const { return ::getpid() == id_; }

 private:
  pid_t id_ = ::getpid();
};

}  // namespace gradsync
