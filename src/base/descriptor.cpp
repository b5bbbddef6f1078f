#include "base/descriptor.hpp"

#include <unistd.h>

namespace gradsync {

void Descriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace gradsync
