// Reading and writing structs of callers that were compiled with another version of gradsync.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "c/guard.hpp"

namespace gradsync::c {

// Members are appended only, in multiples of 8 bytes, without padding at the end.
template <class Struct>
void check_size(const char* name, std::size_t size) {
  static_assert(sizeof(Struct) % 8 == 0 && offsetof(Struct, struct_size) == 0);
  if (size < 8 || size % 8 != 0)
    refuse(ErrorCode::invalid_argument, "{}.struct_size is {}, expected {}", name, size, sizeof(Struct));
}

// What the caller gave; `initial` where it is older than this library and knows less.
template <class Struct>
Struct read_struct(const char* name, const Struct* given, const Struct& initial) {
  check_size<Struct>(name, given->struct_size);
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + std::min(sizeof(Struct), given->struct_size), bytes + given->struct_size,
                  [](unsigned char byte) { return byte != 0; }))
    refuse(ErrorCode::unsupported,
           "{} has {} bytes, and this version, {}, knows {}; the rest asks for something unknown", name,
           given->struct_size, gradsync_version(), sizeof(Struct));
  Struct read = initial;
  std::memcpy(&read, given, std::min(sizeof(Struct), given->struct_size));
  return read;
}

// Fills in as much as the caller knows.
template <class Struct>
void write_struct(const char* name, Struct value, Struct* out) {
  check_size<Struct>(name, out->struct_size);
  value.struct_size = out->struct_size;
  std::memcpy(out, &value, std::min(sizeof(Struct), out->struct_size));
}

}  // namespace gradsync::c
