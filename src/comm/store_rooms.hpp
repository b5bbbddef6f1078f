// What a store knows, without sockets: jobs, their meetings ("rooms"), who is in them and what they brought.
//
// A job has at most one open room: one that not all ranks have entered and nobody has left. The first rank opens it; when
// all have entered, the next one opens the next room, so that a job's processes may join again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/store_protocol.hpp"

namespace gradsync {

class StoreRooms {
 public:
  using Connection = std::uint64_t;
  struct Outgoing {
    Connection to = 0;
    store_protocol::Frame frame;
    bool close = false;  // after it is sent
  };
  using Out = std::vector<Outgoing>;

  // `only_job`: refuse all others; empty: take any. `number` gives random numbers.
  StoreRooms(std::string only_job, std::function<std::uint64_t()> number)
      : only_job_(std::move(only_job)),
        number_(std::move(number)) {}

  // All return false if the connection has broken the protocol and is to be closed at once.
  bool hello(Connection from, const store_protocol::Hello& hello, Out& out);
  bool request(Connection from, store_protocol::Request type, std::string_view body, Out& out);
  // The connection has closed.
  void leave(Connection from, Out& out);

  std::size_t rooms() const { return rooms_.size(); }

 private:
  struct Member {
    Connection connection = 0;  // 0: has not entered, or left
    bool entered = false;
    std::uint64_t process = 0;
  };
  struct Room {
    std::string job;
    std::uint64_t number = 0;
    std::uint32_t size = 0, entered = 0, present = 0, first_rank = 0;
    bool broken = false;
    std::string broken_why;
    std::vector<Member> members;
    std::map<std::string, std::map<std::uint32_t, std::string>> gathers;
    std::map<std::string, std::string> values;
    std::multimap<std::string, Connection> waiting;  // gets of a value that is not there yet
    std::size_t bytes = 0;                           // of values and gathers
    bool open() const { return !broken && entered < size; }
  };
  struct Seat {
    std::shared_ptr<Room> room;
    std::uint32_t rank = 0;
    std::string failure;  // why it gives up, if it said so
    bool goodbye = false;
  };

  bool refuse(Connection to, store_protocol::Refusal reason, std::string why, Out& out);
  std::string objection(const store_protocol::Hello& hello, Room* open) const;
  void break_up(Room& room, std::string why);
  std::string broken_before(const store_protocol::Hello& hello);
  std::shared_ptr<Room> open_room(const std::string& job);
  bool put(Room& room, store_protocol::Named named, Out& out);
  bool get(Room& room, Connection from, const std::string& name, Out& out);
  bool gather(Room& room, std::uint32_t rank, store_protocol::Named named, Out& out);
  void who(const Room& room, Connection from, const std::string& name, Out& out) const;
  void tell_gone(const Room& room, std::uint32_t rank, const std::string& why, Out& out) const;

  std::string only_job_;
  std::function<std::uint64_t()> number_;
  std::vector<std::shared_ptr<Room>> rooms_;
  std::map<Connection, Seat> seats_;
};

}  // namespace gradsync
