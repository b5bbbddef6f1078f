#include "engine/call.hpp"

#include "base/wire.hpp"

namespace gradsync {
namespace {

constexpr std::uint32_t kMagic = 0x32465347;  // "GSF2"

bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather || c == Collective::scatter;
}
bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

}  // namespace

std::string describe(const Call& call) {
  if (call.collective == Collective::barrier) return fmt::format("barrier by {}", name_of(call.algorithm));
  std::string text = fmt::format("{} of {} {}", name_of(call.collective), call.count, name_of(call.dtype));
  if (call.counts_hash != 0) text += fmt::format(" in uneven blocks (hash {:08x})", call.counts_hash & 0xffffffffu);
  if (reduces(call.collective)) text += fmt::format(", {}", name_of(call.op));
  if (has_root(call.collective)) text += fmt::format(", root {}", call.root);
  if (call.collective != Collective::send && call.collective != Collective::recv)
    text += fmt::format(", by {}", name_of(call.algorithm));
  const bool pair = call.collective == Collective::send || call.collective == Collective::recv;
  if (call.tag != 0 && pair) text += fmt::format(", tag {}", call.tag);
  if (call.segments > 1) text += fmt::format(" in {} segments", call.segments);
  if (call.tag != 0 && !pair) text += fmt::format(" (links are measured for it, step {})", call.tag);
  return text;
}

bool same_call(Call mine, Call theirs) {
  for (Call* call : {&mine, &theirs})
    if (call->collective == Collective::recv) call->collective = Collective::send;
  return mine == theirs;
}

Status mismatch(const Made& theirs, const Made& mine) {
  return peer_failure(ErrorCode::mismatch, static_cast<int>(theirs.rank),
                      "rank {} called {} #{} ({}), rank {} called {} #{} ({})", theirs.rank,
                      name_of(theirs.call.collective), theirs.sequence, describe(theirs.call), mine.rank,
                      name_of(mine.call.collective), mine.sequence, describe(mine.call));
}

FrameBytes encode(const FrameHeader& header) {
  FrameBytes bytes{};
  WireWriter out(bytes);
  out.u32(kMagic);
  out.u8(static_cast<std::uint8_t>(header.call.collective));
  out.u8(static_cast<std::uint8_t>(header.call.dtype));
  out.u8(static_cast<std::uint8_t>(header.call.op));
  out.u8(static_cast<std::uint8_t>(header.call.algorithm));
  out.u64(header.epoch);
  out.u64(header.sequence);
  out.u64(header.payload_bytes);
  out.u32(header.call.root);
  out.u32(header.call.segments);
  out.u64(header.call.count);
  out.u64(header.call.counts_hash);
  out.u32(header.call.tag);
  return bytes;
}

Result<FrameHeader> decode_frame(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const std::uint32_t magic = in.u32();
  const std::uint8_t collective = in.u8(), dtype = in.u8(), op = in.u8(), algorithm = in.u8();
  FrameHeader header;
  header.epoch = in.u64();
  header.sequence = in.u64();
  header.payload_bytes = in.u64();
  header.call.root = in.u32();
  header.call.segments = in.u32();
  header.call.count = in.u64();
  header.call.counts_hash = in.u64();
  header.call.tag = in.u32();
  if (!in.ok() || magic != kMagic)
    return failure(ErrorCode::protocol, "frame begins with 0x{:08x}, expected 0x{:08x}", magic, kMagic);
  if (collective >= kCollectiveCount || dtype >= kDTypeCount || op >= kReduceOpCount || algorithm >= kAlgorithmCount ||
      header.payload_bytes > limits::message_bytes_max)
    return failure(ErrorCode::protocol,
                   "frame of unknown content (collective {}, dtype {}, op {}, algorithm {}, {} bytes)", collective,
                   dtype, op, algorithm, header.payload_bytes);
  header.call.collective = static_cast<Collective>(collective);
  header.call.dtype = static_cast<DType>(dtype);
  header.call.op = static_cast<ReduceOp>(op);
  header.call.algorithm = static_cast<Algorithm>(algorithm);
  return header;
}

}  // namespace gradsync
