// Wakes a sleeping poll() from another thread.
#pragma once

#include "base/descriptor.hpp"

namespace gradsync {

class Wake {
 public:
  Wake();                                          // throws Error(unavailable) if the system has no descriptor left
  int descriptor() const { return event_.get(); }  // readable after signal(), until drained
  void signal() const;
  void drain() const;

 private:
  Descriptor event_;
};

}  // namespace gradsync
