// Which of this host's addresses the other ranks shall use.
//
// By default the one that the kernel would send from to reach the rendezvous: it is routable from there, whatever the host
// name resolves to. GRADSYNC_INTERFACE overrides: a comma-separated list of
//   eth0            an exact name (not eth00)          10.0.0.7, fd00::7    an address
//   eth*, en?s0     names with wildcards               10.0.0.0/8           a network
//   !docker0        not this one, in any of these forms; a list of exclusions alone means all others
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "comm/address.hpp"

namespace gradsync {

// One address of one interface.
struct InterfaceAddress {
  std::string name;
  Address address;
  bool up = false;
  bool carrier = true;  // a cable and something at its other end; an interface that just came up shows it late
  bool loopback = false;
  bool bridge = false;  // a virtual bridge (docker0, virbr0): hosts often share its address
};

std::vector<InterfaceAddress> list_interfaces();

struct AddressWish {
  std::string selection;          // GRADSYNC_INTERFACE, may be empty
  std::optional<Address> source;  // what reaches the rendezvous, if that is a question
  bool one_host = false;          // the rendezvous cannot be reached from other hosts
};
// The address to listen on, port 0. Errors list every interface and why it was not taken.
Result<Address> choose_address(std::span<const InterfaceAddress> interfaces, const AddressWish& wish);

// The source address towards the default route, if there is one.
std::optional<Address> default_source();

}  // namespace gradsync
