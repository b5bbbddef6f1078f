// A file that is whole or not there: header, checksum, atomic replacement. Knows nothing of what is in it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace gradsync::torch {

// CRC-64/XZ (ECMA-182, reflected): of "123456789" 0x995dc9bbdf1939fa.
std::uint64_t crc64(std::string_view bytes);

// unavailable, naming path and cause.
Status write_checkpoint_file(const std::string& path, std::string_view payload);
// The payload. unavailable (cannot be read), protocol (not a checkpoint, of another version, cut short, damaged).
Result<std::string> read_checkpoint_file(const std::string& path);

}  // namespace gradsync::torch
