// Streams over TCP, between hosts: one or several connections (lanes) a stream.
//
// With one lane the connection carries the stream's bytes as they are. With several, the stream is cut into segments of at
// most limits::tcp_segment_bytes, each of which goes over one lane behind a header
//
//   u64 offset of its first byte in the stream | u32 length | u32 magic        little-endian
//
// and is taken by the next lane that has room, so a slow connection gets fewer and never stalls the others. The receiver
// reads only the lane whose segment comes next; what is early waits in the kernel. A segment of length 0 is the stream's
// orderly end and says where it is. Nothing is buffered in user space by the sender: what a lane could not take of its
// segment is taken from the next send, whose first bytes are the same (Transport::send).
#pragma once

#include <cerrno>

#include "transport/stream.hpp"

namespace gradsync {

inline constexpr std::size_t kSegmentHeaderBytes = 16;
inline constexpr std::uint32_t kSegmentMagic = 0x67657367;  // "gseg"

// Why a connection broke; 0 and EPIPE: the peer closed it.
inline std::string tcp_error_text(int error) {
  return error == 0 || error == EPIPE ? "its process or communicator ended" : errno_text(error);
}

// Dials call.lanes connections, which may still be under way. `poller` is borrowed until the stream's end.
Result<std::unique_ptr<Outgoing>> open_tcp(const Dialer::Call& call, PeerName peer, Dialer& dialer, Poller& poller);
// The stream of the first lane that arrived; the others follow by add_lane.
Result<std::unique_ptr<Incoming>> accept_tcp(Arrival arrival, PeerName peer, Poller& poller);

}  // namespace gradsync
