#include "base/descriptor.hpp"

#include "base/own_sockets.hpp"

namespace gradsync {

void Descriptor::reset(int fd) {
  if (fd_ >= 0) close_descriptor(fd_);
  fd_ = fd;
}

}  // namespace gradsync
