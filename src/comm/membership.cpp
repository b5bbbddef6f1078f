#include "comm/membership.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/wire.hpp"

namespace gradsync {
namespace {

void put_text(WireWriter& wire, std::string_view value) {
  wire.u8(static_cast<std::uint8_t>(value.size()));
  wire.bytes(value);
}

}  // namespace

std::string encode(const Place& place) {
  GRADSYNC_CHECK(place.unix_name.size() < 108);
  std::string out(kPlaceBytesMax, '\0');
  WireWriter wire({reinterpret_cast<std::byte*>(out.data()), out.size()});
  wire.u8(place.tcp.ipv6 ? 6 : 4);
  for (std::uint8_t byte : place.tcp.bytes) wire.u8(byte);
  wire.u16(place.tcp.port);
  wire.u32(place.tcp.scope);
  wire.u64(place.boot);
  wire.u64(place.network);
  put_text(wire, place.unix_name);
  put_text(wire, std::string_view(place.label).substr(0, kLabelBytesMax / 2));
  put_text(wire, std::string_view(place.declared).substr(0, kLabelBytesMax));
  out.resize(wire.used());
  return out;
}

Result<Place> decode_place(std::string_view bytes) {
  WireReader wire({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  Place place;
  const std::uint8_t family = wire.u8();
  place.tcp.ipv6 = family == 6;
  for (std::uint8_t& byte : place.tcp.bytes) byte = wire.u8();
  place.tcp.port = wire.u16();
  place.tcp.scope = wire.u32();
  place.boot = wire.u64();
  place.network = wire.u64();
  place.unix_name = wire.bytes(wire.u8());
  place.label = wire.bytes(wire.u8());
  place.declared = wire.bytes(wire.u8());
  if (!wire.ok() || wire.left() != 0 || (family != 4 && family != 6))
    return failure(ErrorCode::protocol, "the rendezvous gave {} bytes that are not a rank's place", bytes.size());
  return place;
}

std::vector<std::uint32_t> numbered_by_first_appearance(std::span<const std::uint32_t> values) {
  std::unordered_map<std::uint32_t, std::uint32_t> numbers;
  std::vector<std::uint32_t> out;
  out.reserve(values.size());
  for (std::uint32_t value : values)
    out.push_back(numbers.try_emplace(value, static_cast<std::uint32_t>(numbers.size())).first->second);
  return out;
}

Membership subset(const Membership& whole, std::span<const std::uint32_t> ranks, std::uint32_t my_position) {
  GRADSYNC_CHECK(my_position < ranks.size());
  Membership part;
  part.job = whole.job;
  part.rank = my_position;
  part.size = static_cast<std::uint32_t>(ranks.size());
  std::vector<std::uint32_t> hosts;
  for (std::uint32_t rank : ranks) {
    GRADSYNC_CHECK(rank < whole.size);
    part.places.push_back(whole.places[rank]);
    hosts.push_back(whole.hosts[rank]);
  }
  part.hosts = numbered_by_first_appearance(hosts);
  return part;
}

std::string describe(const Membership& membership, std::uint32_t rank) {
  if (rank >= membership.places.size()) return fmt::format("rank {}", rank);
  const Place& place = membership.places[rank];
  return fmt::format("rank {} (host {}, {})", rank, place.label, text(place.tcp));
}

}  // namespace gradsync
