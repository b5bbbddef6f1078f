#include "engine/movement.hpp"

#include "base/random.hpp"
#include "base/wire.hpp"

namespace gradsync {

std::string operation_name(const Call& call, std::uint64_t sequence) {
  return fmt::format("{} #{}", name_of(call.collective), sequence);
}

Status check_header(const Setup& setup, std::uint32_t from, const FrameHeader& header, std::uint64_t payload_bytes) {
  if (header.epoch != setup.epoch)
    return peer_failure(ErrorCode::protocol, static_cast<int>(from), "frame of communicator {:016x}, expected {:016x}",
                        header.epoch, setup.epoch);
  const Made theirs{from, header.sequence, header.call};
  const std::uint32_t me = setup.schedule->rank;
  const Call* past =
      setup.history && setup.channel == Channel::collective ? setup.history->find(header.sequence) : nullptr;
  if (past && !same_call(*past, header.call)) return mismatch(theirs, {me, header.sequence, *past});
  // Sends and receives are numbered by each side for itself: tags and receives of any rank cross the numbers.
  const bool same_place = setup.channel != Channel::collective || header.sequence == setup.sequence;
  if (!same_place || !same_call(setup.call, header.call)) return mismatch(theirs, {me, setup.sequence, setup.call});
  if (header.payload_bytes != payload_bytes)
    return peer_failure(ErrorCode::mismatch, static_cast<int>(from),
                        "rank {} sent a message of {} bytes, rank {} expected {}", from, header.payload_bytes,
                        setup.schedule->rank, payload_bytes);
  return {};
}

Status check_first_frame(const Setup& setup, std::uint32_t from, Transport& transport) {
  Result<std::span<const std::byte>> shown = transport.peek({from, setup.channel}, limits::frame_header_bytes);
  if (!shown || shown->size() < limits::frame_header_bytes) return {};  // a broken stream counts when it is needed
  Result<FrameHeader> header = decode_frame(shown->first(limits::frame_header_bytes));
  if (header) {
    if (header->sequence > setup.sequence) return {};  // a peer that has finished here already
    if (header->sequence == setup.sequence && same_call(setup.call, header->call)) return {};
  }
  Status status = header ? check_header(setup, from, *header, header->payload_bytes) : header.status();
  if (!status.ok()) status.message = fmt::format("{}: {}", operation_name(setup.call, setup.sequence), status.message);
  return status;
}

std::uint64_t fingerprint_of(const FrameBytes& header) {
  std::uint64_t hash = 0;
  WireReader words(header);
  for (std::size_t at = 0; at < header.size(); at += 8) hash = mix64(hash ^ words.u64());
  return hash;
}

}  // namespace gradsync
