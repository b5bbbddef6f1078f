#include "comm/handshake.hpp"

#include "base/wire.hpp"

namespace gradsync {
namespace {
constexpr std::uint32_t kMagic = 0x31595347;  // "GSY1"
}

std::string encode(const Hello& hello) {
  std::string out(kHelloBytes, '\0');
  WireWriter wire({reinterpret_cast<std::byte*>(out.data()), out.size()});
  wire.u32(kMagic);
  wire.u16(kHelloVersion);
  wire.u8(static_cast<std::uint8_t>(hello.kind));
  wire.u8(static_cast<std::uint8_t>(hello.channel));
  wire.u64(hello.job);
  wire.u64(hello.epoch);
  wire.u32(hello.from);
  wire.u32(hello.to);
  wire.u32(0);
  wire.u16(hello.lane);
  wire.u16(hello.lanes);
  wire.u32(hello.payload_bytes);
  wire.u32(0);
  GRADSYNC_CHECK(wire.used() == kHelloBytes);
  return out;
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  if (bytes.size() != kHelloBytes) return std::nullopt;
  WireReader wire(bytes);
  if (wire.u32() != kMagic || wire.u16() != kHelloVersion) return std::nullopt;
  Hello hello;
  const std::uint8_t kind = wire.u8(), channel = wire.u8();
  if (kind > static_cast<std::uint8_t>(HelloKind::probe) || channel >= kChannelCount) return std::nullopt;
  hello.kind = static_cast<HelloKind>(kind);
  hello.channel = static_cast<Channel>(channel);
  hello.job = wire.u64();
  hello.epoch = wire.u64();
  hello.from = wire.u32();
  hello.to = wire.u32();
  if (wire.u32() != 0) return std::nullopt;
  hello.lane = wire.u16();
  hello.lanes = wire.u16();
  hello.payload_bytes = wire.u32();
  if (wire.u32() != 0) return std::nullopt;
  const bool ranks_fit = hello.from < limits::ranks_max && hello.to < limits::ranks_max;
  const bool lanes_fit = hello.lanes >= 1 && hello.lanes <= limits::lanes_max && hello.lane < hello.lanes;
  const bool payload_fits = hello.payload_bytes <= (hello.kind == HelloKind::stream ? 0 : kHelloPayloadMax);
  if (!ranks_fit || !lanes_fit || !payload_fits) return std::nullopt;
  return hello;
}

}  // namespace gradsync
