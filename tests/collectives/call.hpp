// One call of a collective, made with real memory and checked to the last byte.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/guarded.hpp"
#include "collectives/pattern.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync::test {

// Equal on all ranks.
struct Call {
  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0;  // of the message; of a block where `shared` is not set and the collective has blocks
  bool shared = false;    // the message is cut into blocks of different sizes, one a rank
  bool in_place = false;
  std::uint32_t segments = 0;
  int root = 0;
  std::uint64_t salt = 0;  // differs between calls, so that nothing old looks right

  std::string name() const;
};

// Elements [position, position + count) of a pattern.
struct Stretch {
  const Pattern* pattern = nullptr;
  std::size_t position = 0, count = 0;
};

// What one rank brings and must get. A message starts at the address that both sides share when in place.
struct Roles {
  std::vector<Stretch> input, output;
  std::size_t total = 0;                          // elements of the whole message
  std::size_t input_first = 0, output_first = 0;  // where this rank's parts begin in the message
  std::size_t input_count = 0, output_count = 0;
  std::vector<std::size_t> counts, recv_counts;  // given to the call; empty: equal blocks
};

struct Sources {
  std::span<const Pattern> moved;   // by rank
  const Pattern* mine = nullptr;    // of a reduction
  const Pattern* result = nullptr;  // null: the caller checks the output
};

Roles roles_of(const Call& call, std::uint32_t rank, std::uint32_t size, const Sources& sources);

class Caller {
 public:
  explicit Caller(Communicator& comm) : comm_(comm) {}
  // From now on inputs and outputs are registered memory.
  void use_registered_memory() {
    input_.register_with(comm_);
    output_.register_with(comm_);
  }
  // Makes the call; the first thing that is wrong, or "". `output` is then what this rank got.
  std::string make(const Call& call, const Sources& sources);
  std::span<const std::byte> output() const { return {result_, result_bytes_}; }

 private:
  void run(const Call& call, const Roles& roles, ConstView in, View out);
  void run_async(const Call& call, const Roles& roles, ConstView in, View out);
  std::string check(const Call& call, const Roles& roles, std::byte* in, std::byte* out, bool one_memory);

  Communicator& comm_;
  Guarded input_, output_;
  const std::byte* result_ = nullptr;
  std::size_t result_bytes_ = 0;
};

}  // namespace gradsync::test
