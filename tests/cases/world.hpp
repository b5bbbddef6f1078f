// Worlds for the cases: ranks that are threads of the test, over any transport. Over shm and tcp they join as processes do,
// through a store, and differ from processes only in that they share an address space.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync::cases {

enum class Medium { loopback, shm, tcp, mixed };  // mixed: two (declared) hosts, shm inside, tcp between
inline constexpr Medium kMedia[] = {Medium::loopback, Medium::shm, Medium::tcp};
std::string_view name_of(Medium medium);

struct World {
  std::uint32_t size = 2;
  Medium medium = Medium::loopback;
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);  // of every operation; the deadline of the cases
  std::chrono::nanoseconds start_timeout = std::chrono::seconds(20);
  std::vector<std::string> hosts = {};  // declared host of each rank; empty: all on one (mixed: halves)
  std::uint32_t lanes = 1;
};
std::string describe(const World& world);

// The communicators of a world, one a rank. Throws what joining throws, or the join's first failure.
std::vector<Communicator> open(const World& world);

// Runs `body` once a rank, each in a thread of its own. An exception that leaves it fails the test.
void on_ranks(std::vector<Communicator>& ranks, const std::function<void(Communicator&)>& body);
void in_world(const World& world, const std::function<void(Communicator&)>& body);

// The algorithms of the collective, `automatic` among them.
std::vector<Algorithm> algorithms_of(Collective collective);

}  // namespace gradsync::cases
