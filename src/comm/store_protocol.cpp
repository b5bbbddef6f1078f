#include "comm/store_protocol.hpp"

#include "base/wire.hpp"

namespace gradsync::store_protocol {
namespace {

std::span<std::byte> writable(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }
std::span<const std::byte> readable(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void put_text(WireWriter& wire, std::string_view text) {
  wire.u16(static_cast<std::uint16_t>(text.size()));
  wire.bytes(text);
}
std::string get_text(WireReader& wire, std::size_t bytes_max) {
  const std::size_t size = wire.u16();
  return wire.bytes(size <= bytes_max ? size : wire.left() + 1);  // too long: not ok
}

std::string raw_frame(std::uint8_t type, std::string_view body) {
  std::string out(kFrameHeaderBytes, '\0');
  WireWriter wire(writable(out));
  wire.u32(static_cast<std::uint32_t>(body.size()));
  wire.u8(type);
  return out.append(body);
}

template <class T>
std::optional<T> whole(const WireReader& wire, T value) {
  return wire.ok() && wire.left() == 0 ? std::optional<T>(std::move(value)) : std::nullopt;
}

}  // namespace

std::string frame(Request type, std::string_view body) { return raw_frame(static_cast<std::uint8_t>(type), body); }
Frame frame(Reply type, std::string_view body) {
  return std::make_shared<const std::string>(raw_frame(static_cast<std::uint8_t>(type), body));
}

std::string encode(const Hello& hello) {
  std::string out(18 + hello.job.size(), '\0');
  WireWriter wire(writable(out));
  wire.u32(hello.rank);
  wire.u32(hello.size);
  wire.u64(hello.process);
  put_text(wire, hello.job);
  return out;
}

std::optional<Hello> decode_hello(std::string_view body) {
  WireReader wire(readable(body));
  Hello hello;
  hello.rank = wire.u32();
  hello.size = wire.u32();
  hello.process = wire.u64();
  hello.job = get_text(wire, kJobBytesMax);
  return whole(wire, std::move(hello));
}

std::string encode(const Named& named) {
  std::string out(2 + named.name.size() + named.value.size(), '\0');
  WireWriter wire(writable(out));
  put_text(wire, named.name);
  wire.bytes(named.value);
  return out;
}

std::optional<Named> decode_named(std::string_view body) {
  WireReader wire(readable(body));
  Named named;
  named.name = get_text(wire, limits::store_key_bytes_max);
  if (!wire.ok() || wire.left() > limits::store_value_bytes_max) return std::nullopt;
  named.value = wire.bytes(wire.left());
  return whole(wire, std::move(named));
}

std::string encode(const Gone& gone) {
  const std::string_view why = std::string_view(gone.why).substr(0, kTextBytesMax);
  std::string out(6 + why.size(), '\0');
  WireWriter wire(writable(out));
  wire.u32(gone.rank);
  put_text(wire, why);
  return out;
}

std::optional<Gone> decode_gone(std::string_view body) {
  WireReader wire(readable(body));
  Gone gone;
  gone.rank = wire.u32();
  gone.why = get_text(wire, kTextBytesMax);
  return whole(wire, std::move(gone));
}

std::string encode(const Refused& refused) {
  const std::string_view why = std::string_view(refused.why).substr(0, kTextBytesMax);
  std::string out(3 + why.size(), '\0');
  WireWriter wire(writable(out));
  wire.u8(static_cast<std::uint8_t>(refused.reason));
  put_text(wire, why);
  return out;
}

std::optional<Refused> decode_refused(std::string_view body) {
  WireReader wire(readable(body));
  Refused refused;
  const std::uint8_t reason = wire.u8();
  if (reason > static_cast<std::uint8_t>(Refusal::wrong)) return std::nullopt;
  refused.reason = static_cast<Refusal>(reason);
  refused.why = get_text(wire, kTextBytesMax);
  return whole(wire, std::move(refused));
}

std::string encode_number(std::uint64_t number) {
  std::string out(8, '\0');
  WireWriter wire(writable(out));
  wire.u64(number);
  return out;
}

std::optional<std::uint64_t> decode_number(std::string_view body) {
  WireReader wire(readable(body));
  const std::uint64_t number = wire.u64();
  return whole(wire, number);
}

std::string encode_blobs(const std::string& name, const std::vector<std::string>& blobs) {
  std::size_t bytes = 2 + name.size();
  for (const std::string& blob : blobs) bytes += 2 + blob.size();
  std::string out(bytes, '\0');
  WireWriter wire(writable(out));
  put_text(wire, name);
  for (const std::string& blob : blobs) put_text(wire, blob);
  return out;
}

std::optional<Blobs> decode_blobs(std::string_view body, std::uint32_t count) {
  WireReader wire(readable(body));
  Blobs out;
  out.name = get_text(wire, limits::store_key_bytes_max);
  for (std::uint32_t i = 0; i < count && wire.ok(); ++i) out.blobs.push_back(get_text(wire, kBlobBytesMax));
  return whole(wire, std::move(out));
}

std::optional<Cut> cut_frame(std::string& buffer, std::size_t bytes_max, bool& bad) {
  bad = false;
  if (buffer.size() < kFrameHeaderBytes) return std::nullopt;
  WireReader wire(readable(buffer));
  const std::size_t bytes = wire.u32();
  Cut cut;
  cut.type = wire.u8();
  if (bytes > bytes_max) return bad = true, std::nullopt;
  if (wire.left() < bytes) return std::nullopt;
  cut.body = buffer.substr(kFrameHeaderBytes, bytes);
  buffer.erase(0, kFrameHeaderBytes + bytes);
  return cut;
}

}  // namespace gradsync::store_protocol
