// Who is in a group and where each of them can be reached: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "comm/address.hpp"

namespace gradsync {

// Where one rank's endpoint listens.
struct Place {
  Address tcp;            // reachable from the other hosts
  std::string unix_name;  // abstract UNIX socket, of its network namespace
  std::string label;      // what a person calls the host: Options::host, else the host's own name
  // What hints that two ranks may share a host; the probe decides.
  std::uint64_t boot = 0;     // hash of the kernel's boot id
  std::uint64_t network = 0;  // inode of the network namespace
  std::string declared;       // Options::host
  friend bool operator==(const Place&, const Place&) = default;
};

std::string encode(const Place& place);  // at most kPlaceBytesMax bytes
Result<Place> decode_place(std::string_view bytes);
inline constexpr std::size_t kPlaceBytesMax = 320;
inline constexpr std::size_t kLabelBytesMax = 100;

struct Membership {
  std::uint64_t job = 0;  // random, shared by all ranks of the job
  std::uint32_t rank = 0, size = 0;
  std::vector<Place> places;         // of each rank
  std::vector<std::uint32_t> hosts;  // host number of each rank, numbered by first appearance
};

// The group of `ranks` (of `whole`, in that order) as its member number `my_position` sees it. Hosts are renumbered by
// first appearance.
Membership subset(const Membership& whole, std::span<const std::uint32_t> ranks, std::uint32_t my_position);

// Equal values get equal numbers, numbered by first appearance.
std::vector<std::uint32_t> numbered_by_first_appearance(std::span<const std::uint32_t> values);

// "rank 3 (host b, 192.0.2.7:4711)"
std::string describe(const Membership& membership, std::uint32_t rank);

}  // namespace gradsync
