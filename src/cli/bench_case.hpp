// One line of a benchmark: a collective called with known data, checked, then timed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cli/pattern.hpp"
#include "gradsync/communicator.hpp"

namespace gradsync::cli {

struct CaseOptions {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t bytes = 0;  // of the whole message, rounded up to whole elements in each rank's block
  bool in_place = false;
  bool registered = false;     // in memory of Communicator::allocate
  std::uint32_t segments = 0;  // 0: chosen
  std::span<const std::uint32_t> shards = {};
};

// What one rank saw of the timed calls.
struct Timing {
  std::vector<std::int64_t> start_ns, end_ns;  // CLOCK_MONOTONIC
  std::int64_t cpu_ns = 0;                     // of the whole process, within the calls
};

// One rank's buffers and call. Roots are rank 0; send and recv go from every even rank to the next one.
class BenchCase {
 public:
  BenchCase(Communicator& communicator, const CaseOptions& options);

  std::uint64_t bytes() const { return whole_ * width_; }  // of the message as it is
  // Calls once on fresh data; whether this rank's output is right and its input unchanged.
  bool check();
  Timing time(std::uint32_t iterations);

 private:
  struct Part {  // of the whole message, in elements
    std::uint64_t first = 0, count = 0;
  };
  void place();
  std::span<std::byte> room(std::size_t which, std::size_t bytes);
  void call();
  void fill_input();
  bool input_unchanged() const;
  bool output_right() const;
  std::span<std::byte> bytes_of_input() const { return {input_, part_bytes(in_)}; }
  std::span<std::byte> bytes_of_output() const { return {output_, part_bytes(out_)}; }
  std::size_t part_bytes(Part part) const { return static_cast<std::size_t>(part.count * width_); }

  Communicator& communicator_;
  CaseOptions options_;
  std::uint32_t me_, world_;
  std::size_t width_;
  std::uint64_t block_ = 0, whole_ = 0;  // elements
  Part in_, out_;
  std::array<std::vector<std::byte>, 2> ordinary_;
  std::array<Memory, 2> registered_;
  std::span<std::byte> memory_, output_memory_;  // of one of these two
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

}  // namespace gradsync::cli
