#include "comm/store_rooms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/store.hpp"

namespace gradsync {

using namespace store_protocol;

namespace {
constexpr std::size_t kRoomsMax = 4096;            // meetings of all jobs at a time
constexpr std::size_t kNamesMax = 1024;            // values and gathers of one meeting
constexpr std::size_t kRoomBytesMax = 256u << 20;  // what all ranks of one meeting may bring
}  // namespace

bool StoreRooms::refuse(Connection to, Refusal reason, std::string why, Out& out) {
  out.push_back({to, frame(Reply::refused, encode(Refused{reason, std::move(why)})), true});
  return true;
}

std::shared_ptr<StoreRooms::Room> StoreRooms::open_room(const std::string& job) {
  for (const auto& room : rooms_)
    if (room->job == job && room->open()) return room;
  return nullptr;
}

// Why this worker cannot enter, empty if it can.
std::string StoreRooms::objection(const Hello& hello, Room* open) const {
  if (hello.size == 0 || hello.size > limits::ranks_max)
    return fmt::format("world size is {}, expected 1 to {}", hello.size, limits::ranks_max);
  if (hello.rank >= hello.size)
    return fmt::format("rank {} is outside of the world of {} ranks", hello.rank, hello.size);
  if (open && open->size != hello.size)
    return fmt::format("ranks disagree on the world size: rank {} says {}, rank {} says {}", hello.rank, hello.size,
                       open->first_rank, open->size);
  const auto claimed = [&](const Room& room, bool any_process) {
    if (room.job != hello.job || hello.rank >= room.size) return false;
    const Member& member = room.members[hello.rank];
    return member.connection != 0 && (any_process || member.process != hello.process);
  };
  const std::string duplicate = fmt::format("rank {} is already taken by another worker of this job", hello.rank);
  if (open && claimed(*open, true)) return duplicate;
  for (const auto& room : rooms_)
    if (!room->broken && claimed(*room, false)) return duplicate;
  if (!open && rooms_.size() >= kRoomsMax) return fmt::format("the store holds {} meetings, its limit", kRoomsMax);
  return {};
}

bool StoreRooms::hello(Connection from, const Hello& hello, Out& out) {
  if (!only_job_.empty() && hello.job != only_job_)
    return refuse(from, Refusal::other_job, fmt::format("this store serves job {}, not {}", only_job_, hello.job), out);
  if (std::string why = broken_before(hello); !why.empty()) return refuse(from, Refusal::wrong, std::move(why), out);
  std::shared_ptr<Room> room = open_room(hello.job);
  if (std::string why = objection(hello, room.get()); !why.empty()) {
    if (room && room->size != hello.size && hello.rank < hello.size &&
        hello.size <= limits::ranks_max) {  // this job cannot start: all its ranks hear it
      break_up(*room, why);
      tell_gone(*room, hello.rank, why, out);
    }
    return refuse(from, Refusal::wrong, std::move(why), out);
  }
  if (!room) {
    room = std::make_shared<Room>();
    room->job = hello.job;
    room->number = number_();
    room->size = hello.size;
    room->first_rank = hello.rank;
    room->members.resize(hello.size);
    rooms_.push_back(room);
  }
  Member& member = room->members[hello.rank];
  if (!std::exchange(member.entered, true)) ++room->entered;
  ++room->present;
  member.connection = from;
  member.process = hello.process;
  seats_[from] = {room, hello.rank, {}, false};
  out.push_back({from, frame(Reply::welcome, encode_number(room->number)), false});
  return true;
}

bool StoreRooms::request(Connection from, Request type, std::string_view body, Out& out) {
  const auto found = seats_.find(from);
  if (found == seats_.end()) return false;
  Seat& seat = found->second;
  if (type == Request::goodbye) return seat.goodbye = true;
  if (type == Request::fail) return seat.failure = body.substr(0, kTextBytesMax), true;
  auto named = decode_named(body);
  if (!named) return false;
  switch (type) {
    case Request::put: return put(*seat.room, std::move(*named), out);
    case Request::get: return get(*seat.room, from, named->name, out);
    case Request::gather: return gather(*seat.room, seat.rank, std::move(*named), out);
    case Request::who: who(*seat.room, from, named->name, out); return true;
    default: return false;
  }
}

bool StoreRooms::put(Room& room, Named named, Out& out) {
  room.bytes += named.value.size();
  if (room.values.size() >= kNamesMax || room.bytes > kRoomBytesMax) return false;
  const Frame answer = frame(Reply::value, encode(named));
  const auto [first, last] = room.waiting.equal_range(named.name);
  for (auto at = first; at != last; ++at) out.push_back({at->second, answer, false});
  room.waiting.erase(first, last);
  room.values[named.name] = std::move(named.value);
  return true;
}

bool StoreRooms::get(Room& room, Connection from, const std::string& name, Out& out) {
  const auto found = room.values.find(name);
  if (found != room.values.end()) {
    out.push_back({from, frame(Reply::value, encode(Named{name, found->second})), false});
    return true;
  }
  if (room.waiting.size() >= kNamesMax * room.size) return false;
  room.waiting.emplace(name, from);
  return true;
}

bool StoreRooms::gather(Room& room, std::uint32_t rank, Named named, Out& out) {
  room.bytes += named.value.size();
  if (named.value.size() > kBlobBytesMax || room.gathers.size() > kNamesMax || room.bytes > kRoomBytesMax) return false;
  auto& brought = room.gathers[named.name];
  if (!brought.emplace(rank, std::move(named.value)).second) return false;
  if (brought.size() < room.size) return true;
  std::vector<std::string> blobs;
  for (auto& [from, blob] : brought) room.bytes -= blob.size(), blobs.push_back(std::move(blob));
  const Frame answer = frame(Reply::gathered, encode_blobs(named.name, blobs));
  for (const Member& member : room.members)
    if (member.connection != 0) out.push_back({member.connection, answer, false});
  room.gathers.erase(named.name);
  return true;
}

void StoreRooms::who(const Room& room, Connection from, const std::string& name, Out& out) const {
  std::vector<bool> here(room.size, false);
  const auto gathered = room.gathers.find(name);
  for (std::uint32_t rank = 0; rank < room.size; ++rank) {
    const bool brought = gathered != room.gathers.end() && gathered->second.contains(rank);
    here[rank] = room.entered < room.size ? room.members[rank].entered : brought;
  }
  const auto missing = static_cast<std::uint32_t>(std::find(here.begin(), here.end(), false) - here.begin());
  out.push_back({from, frame(Reply::present, encode(Gone{missing, arrival_text(here)})), false});
}

void StoreRooms::tell_gone(const Room& room, std::uint32_t rank, const std::string& why, Out& out) const {
  const Frame told = frame(Reply::gone, encode(Gone{rank, why}));
  for (const Member& member : room.members)
    if (member.connection != 0) out.push_back({member.connection, told, false});
}

void StoreRooms::leave(Connection from, Out& out) {
  const auto found = seats_.find(from);
  if (found == seats_.end()) return;
  const Seat seat = std::move(found->second);
  seats_.erase(found);
  Room& room = *seat.room;
  room.members[seat.rank].connection = 0;
  --room.present;
  std::erase_if(room.waiting, [&](const auto& entry) { return entry.second == from; });
  const bool was_open = room.open();
  const std::string why = !seat.failure.empty() ? seat.failure
                          : seat.goodbye        ? "it left before all ranks had arrived"
                                                : "its process or connection ended";
  if (was_open) break_up(room, fmt::format("rank {} left the rendezvous: {}", seat.rank, why));
  if (was_open || !seat.goodbye) tell_gone(room, seat.rank, why, out);
  if (room.present == 0 && !(room.broken && room.entered < room.size)) std::erase(rooms_, seat.room);
}

// A room that broke stays until each rank that had not come yet has heard why, once; then it may try again.
void StoreRooms::break_up(Room& room, std::string why) {
  room.broken = true;
  room.broken_why = std::move(why);
  const auto waits = [](const auto& other) { return other->broken && other->present == 0; };
  if (rooms_.size() < kRoomsMax / 2) return;
  const auto oldest = std::find_if(rooms_.begin(), rooms_.end(), waits);
  if (oldest != rooms_.end()) rooms_.erase(oldest);
}

std::string StoreRooms::broken_before(const Hello& hello) {
  for (const auto& room : rooms_) {
    if (!room->broken || room->job != hello.job || hello.rank >= room->size || room->members[hello.rank].entered)
      continue;
    room->members[hello.rank].entered = true;
    std::string why = room->broken_why;
    if (++room->entered == room->size && room->present == 0) std::erase(rooms_, std::shared_ptr<Room>(room));
    return why;
  }
  return {};
}

}  // namespace gradsync
