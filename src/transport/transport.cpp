#include "transport/transport.hpp"

#include <cstring>

namespace gradsync {

Result<std::size_t> Transport::receive(Peer from, std::span<std::byte> into) {
  std::size_t moved = 0;
  while (moved < into.size()) {
    auto shown = peek(from, 1);
    if (!shown.ok()) {
      if (moved > 0) break;  // what was moved counts; the failure is reported next time
      return shown.status();
    }
    if (shown->empty()) break;
    const std::size_t count = std::min(shown->size(), into.size() - moved);
    std::memcpy(into.data() + moved, shown->data(), count);
    consume(from, count);
    moved += count;
  }
  return moved;
}

Result<std::size_t> Transport::land(Peer to, std::span<const std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    auto place = begin_land(to, bytes.size() - done, 0);
    if (!place.ok()) return place.status();
    if (place->empty()) break;
    std::memcpy(place->data(), bytes.data() + done, place->size());
    end_land(to, place->size());
    done += place->size();
  }
  return done;
}

std::string Transport::name(std::uint32_t rank) const {
  const std::string place = describe(rank);
  return place.starts_with("rank ") ? place : fmt::format("rank {}, {}", rank, place);
}

}  // namespace gradsync
