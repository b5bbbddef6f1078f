// Sockets that end with the process that opened them, although it has forked.
//
// A forked child gets a copy of every descriptor, and a connection ends only with its last copy: a rank that is killed would not be
// missed as long as a child of it lives, such as a worker that loads data. So in a child, before fork() returns there, these
// are replaced by a descriptor that is connected to nothing. Their numbers stay taken, so that what the child's copies of our
// objects close later is nobody else's. Between fork and exec they stay open as long as the exec takes.
#pragma once

#include "base/descriptor.hpp"

namespace gradsync {

// No fork in this process while it lives. Nests not.
class WhileNobodyForks {
 public:
  WhileNobodyForks();
  ~WhileNobodyForks();
  WhileNobodyForks(const WhileNobodyForks&) = delete;
  WhileNobodyForks& operator=(const WhileNobodyForks&) = delete;

  // Notes a socket that was opened meanwhile. Nothing, and errno is set, if it is -1 or there is no memory to note it.
  Descriptor keep_from_children(int socket);
};

// `open` returns a new socket, or -1 with errno, and does not block.
template <class Open>
Descriptor own_socket(Open&& open) {
  WhileNobodyForks turn;
  return turn.keep_from_children(open());
}

// Closes any descriptor, and forgets it if it is such a socket.
void close_descriptor(int descriptor);

}  // namespace gradsync
