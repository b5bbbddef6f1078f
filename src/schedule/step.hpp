// The instruction of a schedule: three verbs in two modes over a range of chunks. No pointer, no byte count, no tag.
#pragma once

#include <compare>
#include <cstdint>

namespace gradsync {

enum class Verb : std::uint8_t {
  send,   // the range, to `peer`
  recv,   // the next message of `peer`, into the range: assign, or combine with what is there ("recv_reduce")
  local,  // from `source`, into the range: assign ("copy") or combine ("reduce")
};
enum class Mode : std::uint8_t { assign, combine };  // a send is always `assign`

// Where a range lies. `input` is never written, `scratch` belongs to the executor.
enum class Space : std::uint8_t { input, output, scratch };

// `count` chunks from `first` on, cyclic within the space's cycle (see Shape): after its last chunk comes its first.
// One range is one message, wrapped or not.
struct Range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct Step {
  std::uint32_t first = 0;  // the range that is sent, received into, or written
  std::uint32_t count = 0;
  std::uint32_t source = 0;  // local only: first chunk of the source range, of `count` chunks too
  std::uint32_t peer = 0;    // send and recv only
  Verb verb = Verb::local;
  Mode mode = Mode::assign;
  Space space = Space::output;
  Space source_space = Space::input;  // local only

  Range range() const { return {first, count}; }
  Range source_range() const { return {source, count}; }
  bool writes() const { return verb != Verb::send; }
  friend bool operator==(const Step&, const Step&) = default;
};
static_assert(sizeof(Step) == 20);

}  // namespace gradsync
