// Which hosts a run uses, and which of them this one is.
//
//   # a comment
//   node-a slots=4
//   10.0.0.2:4
//   [fe80::2]:4
//   node-d              (one slot)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace gradsync::cli {

struct HostLine {
  std::string host;         // name or address, without brackets
  std::uint32_t slots = 1;  // workers there
  std::size_t line = 0;     // in the file, from 1
};

// `name` is the file's, for errors, which name line and column: "hosts:3:8: expected a number of slots, found 'x'".
Result<std::vector<HostLine>> parse_host_file(std::string_view text, std::string_view name);
Result<std::vector<HostLine>> read_host_file(const std::string& path);

// The entry whose address is one of this machine's, or whose name is this machine's. An error if there is none or if
// there are several: it lists what was compared.
Result<std::size_t> find_this_host(const std::vector<HostLine>& hosts);

std::uint64_t slots_in_all(const std::vector<HostLine>& hosts);

}  // namespace gradsync::cli
